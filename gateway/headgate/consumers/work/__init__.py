"""A consumer's work: handed out by Redis, done by worker threads, acknowledged or kept."""
