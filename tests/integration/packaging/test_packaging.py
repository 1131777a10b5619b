"""The wheel, the sdist and the npm package: their files, and the message of an incomplete build.

tests/unit/tools/test_build_backend.py has the lines for each fault.
"""

import json
import os
import re
import shlex
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.checkout import DEADLINE_S, NO_PROGRAMS, ROOT, copy_checkout, only_file, pip_wheel, run_module
from tools.build_backend import BUILT

PAGE = {
    *("/".join(path.parts[1:]) for path in BUILT),
    "headgate_server/templates/headgate_console.html",
    "headgate_server/templates/headgate_console_sign_in.html",
}


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def one_clear_line(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the line of ours in pip's output on a failed build; there is no traceback around it."""
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    (line,) = {line.strip() for line in ended.stderr.splitlines() if line.strip().startswith("headgate: ")}
    return line


def fake_npm(folder: Path, *lines: str) -> dict[str, str]:
    """Return an environment in which `npm run --silent build` is these lines of a shell."""
    npm = folder / "bin" / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text("\n".join(["#!/bin/sh -e", '[ "$*" = "run --silent build" ]', *lines, ""]))
    npm.chmod(0o755)
    return {"PATH": f"{npm.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.nightly
@pytest.mark.timeout(2 * DEADLINE_S)
def test_a_wheel_of_an_unbuilt_checkout_has_the_files_for_browsers(tmp_path: Path) -> None:
    """It is built first, and not again for the next wheel. A module that is gone since then is in none.

    If a page no longer builds, the wheel fails with the words of npm and the command that failed. The npm here copies the files
    that the real one has built in this checkout, because another build takes ten seconds of a processor.
    """
    checkout = copy_checkout(tmp_path, built=False)
    gone = checkout / "gateway" / "headgate" / "gone.py"
    gone.touch()
    statics = [Path(package, "static") for package in ("gateway/headgate", "server/headgate_server")]
    npm = fake_npm(tmp_path, "mkdir web/dist", *(f"cp -R {shlex.quote(f'{ROOT / static}/.')} {static}" for static in statics))
    first = pip_wheel(checkout, tmp_path / "first", npm)
    assert first.returncode == 0, first.stderr
    assert names_in(only_file(tmp_path / "first")) >= {*PAGE, "headgate/gone.py"}

    gone.unlink()
    again = pip_wheel(checkout, tmp_path / "again", NO_PROGRAMS)

    assert again.returncode == 0, again.stderr
    names = names_in(only_file(tmp_path / "again"))
    assert names >= PAGE
    assert "headgate/gone.py" not in names

    (checkout / "web" / "src" / "gate.js").write_text("this is no JavaScript\n")
    broken = pip_wheel(checkout, tmp_path / "broken", fake_npm(tmp_path, "echo src/gate.js:1: no JavaScript", "exit 1"))

    assert "`npm run --silent build` failed with status 1" in one_clear_line(broken)
    assert "src/gate.js:1:" in broken.stderr


@pytest.mark.nightly
def test_an_sdist_has_it_too_and_makes_the_same_wheel_without_node(wheel: Path, tmp_path: Path) -> None:
    """To install from it needs no JavaScript."""
    checkout = copy_checkout(tmp_path, built=True)
    built = run_module(
        "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path / "sdist"), str(checkout), environment=NO_PROGRAMS
    )
    assert built.returncode == 0, built.stderr
    sdist = only_file(tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"{'server' if name.startswith('headgate_server') else 'gateway'}/{name}" for name in PAGE} <= inside
    assert "tools/build_backend.py" in inside
    assert not [name for name in inside if name.startswith(("web", "tests", "node_modules"))]

    made = pip_wheel(sdist, tmp_path / "wheel", NO_PROGRAMS)
    assert made.returncode == 0, made.stderr

    assert names_in(only_file(tmp_path / "wheel")) == names_in(wheel)


def test_the_package_index_can_show_the_wheel(wheel: Path) -> None:
    """Its description has no broken link there, and names the package's purpose."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    described = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert isinstance(described, str)
    assert described.lstrip().startswith("# Headgate\n")
    headings = re.findall(r"^## .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert re.findall(r"^## .*$", described, re.MULTILINE) == headings
    assert "<img" not in described
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", described) == []
    assert {"Framework :: Flask", "Typing :: Typed"} <= set(metadata.get_all("Classifier", []))


@pytest.mark.nightly
@pytest.mark.timeout(2 * DEADLINE_S)
def test_the_npm_package_installs_beside_the_applications_own_backbone(tmp_path: Path) -> None:
    """From its tarball, as README says, with one Backbone, so that a LiveCollection is the application's Backbone.Collection."""
    backbone = json.loads((ROOT / "package.json").read_text())["devDependencies"]["backbone"]
    shop = tmp_path / "shop"
    shop.mkdir()

    def run(*words: str, folder: Path = shop) -> str:
        ended = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    packed = run(
        "npm", "pack", "--silent", "--ignore-scripts", "--workspace", "web", "--pack-destination", str(tmp_path), folder=ROOT
    )
    run("npm", "install", "--prefer-offline", "--no-audit", "--no-fund", f"backbone@{backbone}", str(tmp_path / packed.strip()))

    assert len(list((shop / "node_modules").rglob("backbone/package.json"))) == 1
    assert not (shop / "node_modules" / "headgate").is_symlink()
    program = (
        'import Backbone from "backbone"; import { connect } from "headgate"; import { LiveCollection } from "headgate/backbone";'
        "console.log(typeof connect, new LiveCollection([]) instanceof Backbone.Collection);"
    )
    assert run("node", "--input-type=module", "--eval", program).split() == ["function", "true"]
