"""What the process runs on: the event loop, its watchdog, the log of the process, rate limits."""
