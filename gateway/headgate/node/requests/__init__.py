"""What clients ask for, and its answers."""
