"""The email consumer."""
