"""Redis: keys, function libraries, the log, and the private server that Headgate starts where there is none."""
