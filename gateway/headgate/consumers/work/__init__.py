"""A consumer's work. Redis hands it out, and worker threads do it and acknowledge or defer it."""
