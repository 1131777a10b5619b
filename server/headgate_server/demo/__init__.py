"""The demo: an orders board for two users."""
