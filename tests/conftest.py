"""The fixtures of every test: a real Redis, a real gateway process, a real browser. Each is one file of its own."""

pytest_plugins = ["tests.chromium", "tests.gateway_process"]
