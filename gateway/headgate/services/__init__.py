"""The interface for Python services: publish events, follow the log, list clients, check events by schemas."""
