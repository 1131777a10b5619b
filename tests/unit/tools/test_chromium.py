"""The Chromium finder: a browser counts only if it answers, and the one that is named wins or fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import chromium


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No browser anywhere but what the test puts on PATH."""
    monkeypatch.delenv("HEADGATE_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(chromium, "MAC_APPLICATIONS", ())
    monkeypatch.setattr(chromium, "_playwrights_own", lambda: None)


def test_a_browser_on_path_is_found(tmp_path: Path) -> None:
    """The one that the machine has is used."""
    browser = program(tmp_path / "bin" / "google-chrome", "echo Google Chrome 140")
    assert chromium.find() == str(browser)
    assert chromium.version(str(browser)) == "Google Chrome 140"


def test_a_browser_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    """Ubuntu's chromium-browser that only points to a snap, and a download without its libraries, are no browsers."""
    program(tmp_path / "bin" / "chromium", "echo error while loading shared libraries >&2; exit 127")
    browser = program(tmp_path / "bin" / "chrome", "echo Chromium 140")
    assert chromium.find() == str(browser)


def test_the_browser_that_is_named_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HEADGATE_CHROMIUM is not a hint."""
    program(tmp_path / "bin" / "chromium", "echo Chromium 1")
    named = program(tmp_path / "elsewhere" / "chromium", "echo Chromium 2")
    monkeypatch.setenv("HEADGATE_CHROMIUM", str(named))
    assert chromium.find() == str(named)


def test_a_named_browser_that_does_not_run_is_told_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Testing with another browser than the one asked for would be a lie; downloading one, a surprise."""
    program(tmp_path / "bin" / "chromium", "echo Chromium 1")
    monkeypatch.setenv("HEADGATE_CHROMIUM", str(tmp_path / "missing"))
    assert chromium.main() == 1
    assert "HEADGATE_CHROMIUM" in capsys.readouterr().err


def test_no_browser_says_how_to_get_one() -> None:
    """The message names the command and the variable."""
    with pytest.raises(chromium.NoChromium, match=r"make chromium.*HEADGATE_CHROMIUM"):
        chromium.find()


def test_routes_are_tried_in_turn_until_a_browser_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A route that fails, and one that ends well but brings nothing that runs, are not the end."""
    browser = tmp_path / "bin" / "chromium"
    browser.parent.mkdir()
    fails = program(tmp_path / "fails", "echo no route to host; exit 1")
    useless = program(tmp_path / "useless", "exit 0")
    brings = program(tmp_path / "brings", f'printf "#!/bin/sh\\necho Chromium 140\\n" > "{browser}"; /bin/chmod 755 "{browser}"')
    monkeypatch.setattr(chromium, "_routes", lambda: iter([[str(fails)], [str(useless)], [str(brings)]]))
    assert chromium.bring() == str(browser)


def test_when_every_route_fails_each_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One look at the message shows whether it is the network, the rights or the disk."""
    first = program(tmp_path / "first", "echo downloading; echo Error: no route to host; echo '    at line 1'; exit 1")
    second = program(tmp_path / "second", "exit 7")
    monkeypatch.setattr(chromium, "_routes", lambda: iter([[str(first)], [str(second)], [str(tmp_path / "third")]]))
    with pytest.raises(chromium.NoChromium) as caught:
        chromium.bring()
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("first: Error: no route to host")
    assert lines[2].endswith("second: exit status 7")
    assert "third" in lines[3]
