"""The interface for Python services, which publish events, follow the log, list clients, and check events against schemas."""
