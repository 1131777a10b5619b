"""Parses host names, origins, HTTP targets and Redis URLs into values, once at the edge."""
