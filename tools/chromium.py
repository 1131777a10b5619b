"""The Chromium that the end-to-end tests drive: find one on this machine, or bring one.

`python -m tools.chromium` prints the path and exits 0, or tries, in this order: Playwright's own download, then
the system's packages (as root, or where sudo needs no password), then prints the one command to run and exits 1.

A browser counts only if `--version` answers: a download without its system libraries, and Ubuntu's `chromium-browser`
that only points to a snap, are files that look like one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
MAC_APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
ANSWER_DEADLINE_S = 30
# A download on a slow line, and no longer: a blocked network must end in the next route, not in a hang.
BRING_DEADLINE_S = 400


class NoChromium(Exception):
    """No Chromium runs; the message has the cure."""


def find() -> str:
    """Return the path of a Chromium that answers: $HEADGATE_CHROMIUM alone if set, else PATH, macOS's, Playwright's.

    Raises:
        NoChromium: none answers, or $HEADGATE_CHROMIUM does not.
    """
    if wanted := os.environ.get("HEADGATE_CHROMIUM"):
        path = shutil.which(wanted)
        if path is None or version(path) is None:
            raise NoChromium(f"HEADGATE_CHROMIUM={wanted} does not run; set it to a Chromium or Chrome, or unset it")
        return path
    for path in _candidates():
        if version(path) is not None:
            return path
    raise NoChromium("no Chromium that runs was found; `make chromium` brings one, HEADGATE_CHROMIUM=/path names one")


def version(path: str) -> str | None:
    """Return the output of `--version` of the browser at `path`, or None if it does not run."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=ANSWER_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def bring() -> str:
    """Return the path of a Chromium, installing one by the first route that works.

    Raises:
        NoChromium: every route failed; the message has the reason of each.
    """
    faults = []
    for route in _routes():
        print(f"headgate: bringing Chromium: {' '.join(route)}", flush=True)
        if fault := _run(route):
            faults.append(f"{' '.join(route)}: {fault}")
            continue
        try:
            return find()
        except NoChromium as error:
            faults.append(f"{' '.join(route)}: {error}")
    raise NoChromium("\n  ".join(["Chromium could not be brought here:", *faults, "install it and run make again"]))


def _candidates() -> Iterator[str]:
    for name in NAMES:
        if path := shutil.which(name):
            yield path
    yield from (path for path in MAC_APPLICATIONS if Path(path).exists())
    if (path := _playwrights_own()) is not None:
        yield path


def _playwrights_own() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def _routes() -> Iterator[Sequence[str]]:
    yield (sys.executable, "-m", "playwright", "install", "chromium")
    if (root := _as_root()) is None:
        return
    if shutil.which("apt-get"):
        if _playwrights_own() is not None:
            # The download is there and only misses its libraries.
            yield (*root, sys.executable, "-m", "playwright", "install-deps", "chromium")
        yield (*root, "apt-get", "update")
        yield (*root, "apt-get", "install", "-y", "--no-install-recommends", "chromium")
    elif shutil.which("dnf"):
        yield (*root, "dnf", "install", "-y", "chromium")
    elif shutil.which("apk"):
        yield (*root, "apk", "add", "chromium")


def _as_root() -> tuple[str, ...] | None:
    """Return what to put before a command that needs root: nothing as root, sudo where it asks nothing, None if neither."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0:
        return ("sudo", "-n")
    return None


def _run(command: Sequence[str]) -> str | None:
    """Run one route; return None if it ended well, else the line with the reason: the first with "error" in it, or the last."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BRING_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() or line.startswith("E:")] or lines[-1:]
    return told[0].strip() if told else f"exit status {done.returncode}"


def main() -> int:
    """Print the Chromium that the tests will use, bringing one if there is none. Return the exit status."""
    try:
        try:
            path = find()
        except NoChromium:
            if os.environ.get("HEADGATE_CHROMIUM"):
                raise
            path = bring()
    except NoChromium as error:
        print(f"headgate: {error}", file=sys.stderr)
        return 1
    print(f"headgate: Chromium for the end-to-end tests: {path} ({version(path)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
