"""Schemas of topics: from JSON Schema files to checks at publish and types."""
