"""The population: clients join, are shed, moved and evicted."""
