"""The process below the gateway, with the event loop, its watchdog, the log of the process, and rate limits."""
