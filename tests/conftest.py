"""The fixtures of every test: a real Redis, a real gateway process, a real browser. Each is one file of its own."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.chromium", "tests.gateway_process", "tests.redis_server"]

# A slow or busy machine is no fault of the code under test: hangs are caught by the timeout of each test instead.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("headgate")
