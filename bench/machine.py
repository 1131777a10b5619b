"""The machine that a result was measured on: what a reader needs to judge it, and nothing that names its owner."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("gevent", "msgspec", "python-engineio", "python-socketio", "redis", "websockets")


def cores() -> tuple[int, int]:
    """Return the core for the server and the core for load and bus; the same one twice if there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def describe() -> dict[str, Any]:
    """Return cores, CPU model, memory, kernel and versions. No host name, no user, no path."""
    server_core, load_core = cores()
    return {
        "cpu_model": _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "server_core": server_core,
        "load_and_bus_core": load_core,
        "memory_gib": round(int(_first(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())) / 1024**2),
        "kernel": platform.release(),
        "virtualised": "hypervisor" in Path("/proc/cpuinfo").read_text(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "compiler": _output("cc", "--version"),
        "node": _output("node", "--version"),
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else "0"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "not installed"
