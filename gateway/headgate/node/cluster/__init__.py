"""The exchange between this process and the others through Redis."""
