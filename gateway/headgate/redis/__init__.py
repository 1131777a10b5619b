"""Redis: keys, function libraries, the log, and the private server that Headgate starts if you have none."""
