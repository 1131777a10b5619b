"""The live feed of a namespace from Redis, verified once a second and repaired from the log."""
