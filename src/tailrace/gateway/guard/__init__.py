"""Which clients may come in, and what they may see: credentials, rights, budgets, revocation.

- guard: what every request passes first: tokens, origins, rights, limits
- access: what clients may have: everything, or what the rights of their tokens allow
- narrow: turn what a client asks to follow into the part of it that it may see
"""
