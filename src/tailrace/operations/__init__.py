"""What an operator asks for from the command line: status, rebuild, reset."""
