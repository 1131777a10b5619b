"""A consumer's work. Redis hands it out, worker threads do it, and acknowledge or keep it."""
