"""Who is here: clients join, are shed, moved and evicted."""
