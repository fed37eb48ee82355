"""Access: who may see what. Tokens, the rights in their claims, and limits; the web is not known here."""
