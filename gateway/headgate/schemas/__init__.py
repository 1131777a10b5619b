"""Schemas of topics: from JSON Schema files to types, checks at publish, and an AsyncAPI document."""
