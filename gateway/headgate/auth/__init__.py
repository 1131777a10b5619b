"""Users and their rights, with tokens, grants, admission, expiry and revocation."""
