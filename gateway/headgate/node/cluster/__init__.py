"""What this process and the others tell each other through Redis."""
