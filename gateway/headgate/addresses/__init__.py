"""Addresses as values: host names, origins, HTTP targets and URLs of Redis, parsed once where they enter."""
