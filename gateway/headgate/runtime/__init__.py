"""The process below the gateway: the event loop, its watchdog, the log of the process, rate limits."""
