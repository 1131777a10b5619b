"""Who may do what, and for how long: tokens, grants, admission, expiry, revocation."""
