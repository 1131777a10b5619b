"""Find Prometheus and promtool, or bring them: `python -m tools.prometheus` prints the folder of both.

In: the PATH, or Debian's package `prometheus`, unpacked into build/prometheus and not installed. For `make monitoring`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "prometheus"
PROGRAMS = ("prometheus", "promtool")


def found() -> Path | None:
    """Return the folder with both programs; None where there is none."""
    unpacked = FOLDER / "usr" / "bin"
    if all((unpacked / program).exists() for program in PROGRAMS):
        return unpacked
    on_path = shutil.which("prometheus")
    if on_path is not None and all((Path(on_path).parent / program).exists() for program in PROGRAMS):
        return Path(on_path).parent
    return None


def bring() -> Path:
    """Return the folder with both programs; unpack Debian's package if there is none.

    Raises:
        RuntimeError: there is no apt here, or it does not have the package.
    """
    here = found()
    if here is not None:
        return here
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=FOLDER, check=True, capture_output=True, timeout=300)
        [package] = FOLDER.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], check=True, capture_output=True, timeout=300)
        package.unlink()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise RuntimeError(f"no Prometheus: put prometheus and promtool on the PATH ({error})") from error
    unpacked = found()
    if unpacked is None:
        raise RuntimeError("the package `prometheus` has no prometheus and promtool")
    return unpacked


if __name__ == "__main__":
    try:
        print(bring())
    except RuntimeError as error:
        sys.exit(f"headgate: {error}")
