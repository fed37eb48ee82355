"""Access: who may see what. Tokens, the rights in their claims, and limits. Knows nothing of the web.

- grant: what rights allow of one view: some keys, and the rows that match a filter
"""
