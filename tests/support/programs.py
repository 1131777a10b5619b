"""Programs that stand for a Redis server, as far as they are asked for their version."""

from pathlib import Path

OLD, NEW = "Redis server v=6.2.14 sha=00000000:0 malloc=jemalloc", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc"


def program(path: Path, version: str, then: str = "exit 1") -> str:
    """Write a program that says that it is a Redis of some version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{then}\n')
    path.chmod(0o755)
    return str(path)
