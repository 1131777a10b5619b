"""Users, their rights, and the end of both: tokens, grants, admission, expiry, revocation."""
