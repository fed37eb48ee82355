"""Who may come in, and what they may see: credentials, rights, budgets, revocation.

- guard: what every request passes first: tokens, origins, rights, limits
"""
