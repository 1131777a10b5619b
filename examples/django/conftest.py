pytest_plugins = ["headgate.testing"]
