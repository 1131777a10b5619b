"""Cutting a release, in a small repository: the written files, and that nothing is written after a fault."""

import json
import subprocess
from datetime import date
from pathlib import Path

import pytest

from tools import release as tool
from tools.release import CHANGELOG, LOCK, NPM, PACKAGE, CannotRelease, release

DAY = date(2026, 11, 23)
LOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n\n## [0.1.0] - 2026-11-01\n\n- The beginning.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that say a version, committed."""
    files = {
        PACKAGE: '"""Words."""\n\n__version__ = "0.1.0"\n',
        NPM: '{\n  "name": "headgate",\n  "version": "0.1.0",\n  "dependencies": { "other": "0.1.0" }\n}\n',
        LOCK: json.dumps({"packages": {"": {}, "web": {"name": "headgate", "version": "0.1.0"}}}, indent=2) + "\n",
        CHANGELOG: LOG,
        "examples/react/package.json": '{ "headgate": "^0.1.0", "react": "^0.1.0" }\n',
        "docs/operations/install.md": "`headgate-0.1.0-py3-none-any.whl`, and headgate-0.1.01\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Begin")):
        git(tmp_path, *words)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Ana", "-c", "user.email=ana@example.com")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(autouse=True)
def as_ana(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git wants to know the author."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ana")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ana@example.com")


def test_a_release_writes_the_version_everywhere_commits_and_tags(project: Path) -> None:
    """The Python package, the npm package and its lock, examples and pages, and a dated section below an empty one."""
    release(project, "0.2.0", DAY)

    assert '__version__ = "0.2.0"' in (project / PACKAGE).read_text()
    assert json.loads((project / NPM).read_text()) == {"name": "headgate", "version": "0.2.0", "dependencies": {"other": "0.1.0"}}
    assert json.loads((project / LOCK).read_text())["packages"]["web"]["version"] == "0.2.0"
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n### Added\n\n- Something." in (project / CHANGELOG).read_text()
    assert (project / "examples/react/package.json").read_text() == '{ "headgate": "^0.2.0", "react": "^0.1.0" }\n'
    assert (project / "docs/operations/install.md").read_text() == "`headgate-0.2.0-py3-none-any.whl`, and headgate-0.1.01\n"
    assert git(project, "log", "-1", "--format=%s %D").startswith("Release 0.2.0")
    assert git(project, "tag", "--points-at", "HEAD") == "v0.2.0"
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.2", "'0.2' is no version: expected three numbers, such as 0.2.0"),
        ("v0.2.0", "'v0.2.0' is no version: expected three numbers, such as 0.2.0"),
        ("0.1.0", "0.1.0 is not above 0.1.0, which is the present version"),
        ("0.0.9", "0.0.9 is not above 0.1.0, which is the present version"),
    ],
)
def test_a_wrong_version_changes_nothing(project: Path, version: str, said: str) -> None:
    with pytest.raises(CannotRelease) as raised:
        release(project, version, DAY)
    assert str(raised.value) == said
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "log", "--format=%s") == "Begin"


def test_a_release_needs_changes_a_clean_checkout_and_a_new_tag(project: Path) -> None:
    """In this order of finding out."""
    (project / "more.txt").touch()
    with pytest.raises(CannotRelease, match="there are changes that are not committed"):
        release(project, "0.2.0", DAY)
    (project / "more.txt").unlink()
    git(project, "tag", "v0.2.0")
    with pytest.raises(CannotRelease, match=r"the tag v0\.2\.0 exists"):
        release(project, "0.2.0", DAY)
    (project / CHANGELOG).write_text(LOG.replace("### Added\n\n- Something.\n\n", ""))
    git(project, "commit", "--quiet", "--all", "--message", "Say nothing")
    with pytest.raises(CannotRelease, match=r"says nothing below \[Unreleased\]"):
        release(project, "0.3.0", DAY)


def test_the_versions_of_this_project_agree() -> None:
    """The release writes them together; no other commit may write one of them."""
    now = tool.current(tool.ROOT)
    assert json.loads((tool.ROOT / NPM).read_text())["version"] == now
    assert json.loads((tool.ROOT / LOCK).read_text())["packages"]["web"]["version"] == now


def test_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([]) == 2
    assert capsys.readouterr().err == "usage: make release VERSION=0.2.0\n"
