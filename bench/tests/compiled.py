"""Parts of the load generator as libraries."""

import ctypes
import subprocess
from pathlib import Path

from bench.generator import BINARIES


def compiled(name: str, folder: Path) -> ctypes.CDLL:
    """Compile one C file of load/, and load it."""
    library, source = folder / f"{name}.so", BINARIES.parent / "load" / f"{name}.c"
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source], check=True, timeout=120)
    return ctypes.CDLL(str(library))
