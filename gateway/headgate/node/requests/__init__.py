"""The requests of clients and their answers."""
