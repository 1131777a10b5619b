"""Stands in front of a package that only a tool of ours brings: structlog would load it in each of the hundreds of processes."""

raise ModuleNotFoundError("rich is not installed where Headgate runs", name="rich")
