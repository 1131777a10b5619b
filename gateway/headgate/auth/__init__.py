"""Authority: whose a client is, what it may do and for how long. Tokens, grants, admission, expiry, revocation."""
