"""Who may come in, and what they may see: credentials, rights, budgets, revocation."""
