"""The schemas of topics: from JSON Schema files to types, to checks at publish, and to an AsyncAPI document."""
