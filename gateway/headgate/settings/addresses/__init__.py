"""Addresses as values: host names, origins, HTTP targets and Redis URLs, parsed once at the edge."""
