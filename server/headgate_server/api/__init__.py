"""The HTTP API, for publishing and reading the log, with refusals as JSON."""
