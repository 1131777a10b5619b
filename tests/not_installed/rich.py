"""Takes the place of a package that only a tool of ours brings, as structlog would load it in hundreds of processes."""

raise ModuleNotFoundError("rich is not installed where Headgate runs", name="rich")
