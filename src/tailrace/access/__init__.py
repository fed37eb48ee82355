"""Access: who may see what. Tokens, the rights in their claims, and limits; the web is not known here.

- grant: what rights allow of one view: some keys, and the rows that match a filter
"""
