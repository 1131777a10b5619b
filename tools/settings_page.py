"""docs/settings.md, written from `headgate.settings.settings`: no setting is described twice.

`python -m tools.settings_page` writes the page; with `--check` it writes nothing and exits 1 if the page differs from
the code.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from headgate.settings.options import plain
from headgate.settings.settings import PREFIX, Settings

from .generated import row, write_or_check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

<!-- Generated from gateway/headgate/settings/settings.py by `make settings`; `make lint` checks that it is up to date. -->

A setting is a key of the Flask application's `app.config`, a line of the [configuration file](consumers.md#the-file), an
environment variable, or an option of `headgate serve`; the later of these wins. Set `app.config` before `Headgate(app)`.
`headgate serve` needs host, port, workers, Redis, data folder and log settings before it imports the application, so it refuses
those in `app.config`. The file has settings under `[settings]`, in lower case without `HEADGATE_`. The gateway reads all
settings at start, and reports all wrong ones together; [SIGHUP](operations/install.md#settings-and-reload) reads the file
again. An empty value counts as not set, and a name in small letters is refused. Lists are comma-separated. `headgate config
show` prints each with its origin.

| name | default | expected | description |
|---|---|---|---|
"""

# Read by the tools around the gateway, not by the gateway: (name, read by, description).
OTHERS = (
    (
        "HEADGATE_REDIS_SERVER",
        "the private Redis",
        "Path of the `redis-server` or `valkey-server` to start when `HEADGATE_REDIS_URL` is not set.",
    ),
    (
        "HEADGATE_CONFIG",
        "`headgate` and its commands",
        "Path of the configuration file. Not set: `headgate.toml` in the current folder, if there is one.",
    ),
    (
        "HEADGATE_PURE",
        "every process, as it imports `headgate`",
        "Set to 1: do not load the C extension. No configuration file can set it.",
    ),
    ("_HEADGATE_COMPLETE", "`headgate`", "Set by a shell that completes commands: `bash_source`, `zsh_source` or `fish_source`."),
    ("HEADGATE_CHROMIUM", "`make test`", "Path of the Chromium or Chrome that the end-to-end tests drive."),
    ("HEADGATE_BENCH_CENTRIFUGO", "`make bench`", "Path of the Centrifugo to measure beside. Not set: `centrifugo` in PATH."),
    ("PYTHON", "`make`", "Interpreter to build `.venv` with. Not set: the first one that is 3.11 or newer."),
    ("ARGS", "`make run`, `make unit`, `make e2e`", "More arguments for `headgate serve` or pytest: `make unit ARGS=-v`."),
)

OTHERS_HEAD = """
The tools around the gateway read these. The gateway does not:

| name | read by | description |
|---|---|---|
"""


def describe_options(declared: type[Any]) -> list[tuple[str, str | None, str, str]]:
    """Return (name, default, expected, doc) of every option, in order. A default of "" means "not set", None means required."""
    return [
        (f.name, None if f.default is dataclasses.MISSING else plain(f.default), f.metadata["expected"], f.metadata["doc"])
        for f in dataclasses.fields(declared)
    ]


def describe() -> list[tuple[str, str, str, str]]:
    """Return (environment name, default, expected, doc) of every setting."""
    options = describe_options(Settings)
    return [(PREFIX + name.upper(), default or "", expected, doc) for name, default, expected, doc in options]


def page() -> str:
    """Return the whole page."""
    settings = (
        (f"`{name}`", f"`{default}`" if default else "not set", expected, doc) for name, default, expected, doc in describe()
    )
    others = ((f"`{name}`", reader, doc) for name, reader, doc in OTHERS)
    return HEAD + "".join(map(row, settings)) + OTHERS_HEAD + "".join(map(row, others))


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    return write_or_check(arguments, PAGE, page(), "gateway/headgate/settings/settings.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
