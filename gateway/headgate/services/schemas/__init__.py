"""Turns JSON Schema files of topics into checks at publish and into types."""
