"""Takes the place of a package that few users have, as redis-py would load it in hundreds of processes."""

raise ModuleNotFoundError("opentelemetry is not installed where most tests run", name="opentelemetry")
