"""Find the OpenTelemetry Collector, or build it: `python -m tools.collector` prints its path.

In: `otelcol` on the PATH, or Go, which builds tools/otelcol (the Collector's own modules, pinned) into build/otelcol. For
`make tracing`: the first build takes some minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, PROGRAM = ROOT / "tools" / "otelcol", ROOT / "build" / "otelcol" / "otelcol"


def bring() -> Path:
    """Return the program; build it if there is none.

    Raises:
        RuntimeError: there is no Go here, or it cannot build it.
    """
    if PROGRAM.exists():
        return PROGRAM
    on_path = shutil.which("otelcol")
    if on_path is not None:
        return Path(on_path)
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["go", "build", "-trimpath", "-o", str(PROGRAM), "."], cwd=SOURCE, check=True, capture_output=True, timeout=1800
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"no OpenTelemetry Collector: {error.stderr.decode(errors='replace')[-500:]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"no OpenTelemetry Collector: put otelcol, or go, on the PATH ({error})") from error
    return PROGRAM


if __name__ == "__main__":
    try:
        print(bring())
    except RuntimeError as error:
        sys.exit(f"headgate: {error}")
