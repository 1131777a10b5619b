"""Cuts a release: `make release VERSION=0.2.0`.

In: the section `[Unreleased]` of CHANGELOG.md, a clean checkout. Out: the version where it is written (the Python package, the
npm package and its lock, and where examples and pages name a package or an image), a dated section of the changelog, one
commit, and the tag `v0.2.0`. Nothing is pushed or published: the workflow `.github/workflows/release.yml` does that for a pushed
tag. A fault is one line, and then nothing has changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, NPM, LOCK, CHANGELOG = "gateway/headgate/installation.py", "web/package.json", "package-lock.json", "CHANGELOG.md"
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
WRITTEN = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
UNRELEASED = "## [Unreleased]\n"
# Where a reader copies a name with its version: `"headgate": "^0.1.0"`, `headgate:0.1.0`, `headgate-0.1.0-py3-none-any.whl`.
NAMING = (
    "examples/*/package.json", "examples/deploy/README.md", "examples/deploy/kubernetes/*.yaml", "docs/operations/*.md",
    "docs/howto/*.md",
)  # fmt: skip
NAMED = r'(headgate(?:":\s*"\^|:|-)){}\b'


class CannotRelease(Exception):
    """Why there is no release; its text is one line for the caller."""


def current(root: Path) -> str:
    """Return the version in the Python package."""
    found = WRITTEN.search((root / PACKAGE).read_text("utf-8"))
    if found is None:
        raise CannotRelease(f"{PACKAGE} has no __version__")
    return found[1]


def check(version: str, now: str, changelog: str) -> None:
    """Raise CannotRelease if the version is none, or not above the present one, or nothing has changed since."""
    parts = VERSION.fullmatch(version)
    if parts is None:
        raise CannotRelease(f"{version!r} is no version: expected three numbers, such as 0.2.0")
    if tuple(map(int, parts.groups())) <= tuple(map(int, now.split("."))):
        raise CannotRelease(f"{version} is not above {now}, which is the present version")
    if UNRELEASED not in changelog:
        raise CannotRelease(f"{CHANGELOG} has no section [Unreleased]")
    if not re.search(r"^- ", section(changelog), re.MULTILINE):
        raise CannotRelease(f"{CHANGELOG} says nothing below [Unreleased]")


def section(changelog: str) -> str:
    """Return what stands below [Unreleased]."""
    return changelog.partition(UNRELEASED)[2].partition("\n## [")[0]


def dated(changelog: str, version: str, day: date) -> str:
    """Return the changelog with its unreleased changes under the version."""
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day.isoformat()}\n", 1)


def written(root: Path, version: str, day: date) -> dict[str, str]:
    """Return the new text of each file with the version."""
    texts = {name: (root / name).read_text("utf-8") for name in (PACKAGE, NPM, LOCK, CHANGELOG)}
    check(version, current(root), texts[CHANGELOG])
    lock = json.loads(texts[LOCK])
    lock["packages"]["web"]["version"] = version
    named = re.compile(NAMED.format(re.escape(current(root))))
    pages = {str(path.relative_to(root)): path.read_text("utf-8") for pattern in NAMING for path in sorted(root.glob(pattern))}
    return {
        **{name: named.sub(rf"\g<1>{version}", text) for name, text in pages.items() if named.search(text)},
        PACKAGE: WRITTEN.sub(f'__version__ = "{version}"', texts[PACKAGE]),
        NPM: re.sub(r'^(  "version": )"[^"]+"', rf'\g<1>"{version}"', texts[NPM], count=1, flags=re.MULTILINE),
        LOCK: json.dumps(lock, indent=2, ensure_ascii=False) + "\n",
        CHANGELOG: dated(texts[CHANGELOG], version, day),
    }


def git(*words: str, root: Path) -> str:
    """Run git and return its output."""
    ended = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CannotRelease(f"git {words[0]}: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout.strip()


def release(root: Path, version: str, day: date) -> None:
    """Write, commit and tag."""
    if git("status", "--porcelain", root=root):
        raise CannotRelease("there are changes that are not committed")
    if git("tag", "--list", f"v{version}", root=root):
        raise CannotRelease(f"the tag v{version} exists")
    files = written(root, version, day)
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8")
    git("commit", "--quiet", "--message", f"Release {version}", "--", *files, root=root)
    git("tag", "--annotate", f"v{version}", "--message", f"Headgate {version}", root=root)


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if len(arguments) != 1 or not arguments[0]:
        print("usage: make release VERSION=0.2.0", file=sys.stderr)
        return 2
    try:
        release(ROOT, arguments[0], datetime.now(UTC).date())
    except CannotRelease as error:
        print(f"headgate: no release: {error}.", file=sys.stderr)
        return 1
    print(f"Committed and tagged v{arguments[0]}. Push both to publish: git push --follow-tags")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
