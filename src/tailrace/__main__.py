"""`python -m tailrace`: the same as the command `tailrace`."""

import sys

from tailrace.cli import main

sys.exit(main())
