"""The HTTP API: publishing, reading the log, refusals as JSON."""
