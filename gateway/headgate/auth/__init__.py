"""Authority: the user of a client, its rights, and their end. Tokens, grants, admission, expiry, revocation."""
