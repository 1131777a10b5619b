"""Keys, function libraries and the log in Redis, and the private server that Headgate starts without one."""
