"""The fixtures of every test: a real Redis, a real gateway process, a real browser. Each is one file of its own."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.chromium",
    "tests.gateway_process",
    "tests.redis_server",
    "tests.smtp_server",
    "tests.mailer",
    "tests.consume_process",
]

# What a developer has set for a gateway of theirs is not for the tests: above all not the Redis to write to.
for _name in [name for name in os.environ if name.startswith("HEADGATE_")]:
    if _name not in ("HEADGATE_CHROMIUM", "HEADGATE_REDIS_SERVER"):
        del os.environ[_name]

# A slow or busy machine is no fault of the code under test: hangs are caught by the timeout of each test instead.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("headgate")
