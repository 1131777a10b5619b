"""The bill of materials lists the pins of the lock files, all of it and nothing else, and is the same for the same locks."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools.sbom import bill

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return bill(ROOT)


def test_it_is_cyclonedx(document: dict[str, Any]) -> None:
    """It has the fields that CycloneDX 1.6 asks of a document and of each component."""
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    for component in document["components"]:
        assert {"type", "name", "version", "purl", "bom-ref", "scope"} <= set(component)
        assert component["scope"] in ("required", "excluded")
    references = [component["bom-ref"] for component in document["components"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize(("lock", "scope"), [("requirements.txt", "required"), ("requirements-dev.txt", None)])
def test_every_python_pin_is_in_it_with_all_hashes(document: dict[str, Any], lock: str, scope: str | None) -> None:
    """A package that the product runs with is required, also where tests need it too."""
    listed = {component["purl"]: component for component in document["components"]}
    text = (ROOT / lock).read_text()
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE):
        component = listed[f"pkg:pypi/{name}@{version}"]
        assert scope is None or component["scope"] == scope
        assert all(re.fullmatch("[0-9a-f]{64}", found["content"]) for found in component["externalReferences"][0]["hashes"])
    hashes = {found["content"] for c in listed.values() for found in c.get("externalReferences", [{"hashes": []}])[0]["hashes"]}
    assert set(re.findall(r"sha256:([0-9a-f]{64})", text)) <= hashes


def test_every_javascript_package_is_in_it(document: dict[str, Any]) -> None:
    """Ours are not, because the bill is for them."""
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    wanted = {
        (path.rpartition("node_modules/")[2], entry["version"])
        for path, entry in locked.items()
        if "node_modules/" in path and "version" in entry
    }
    listed = {(c["name"], c["version"]) for c in document["components"] if c["purl"].startswith("pkg:npm/")}
    assert listed == wanted
    assert len(listed) > 10


def test_the_same_locks_give_the_same_bytes(document: dict[str, Any]) -> None:
    """No time and no random number, so a difference is a difference of the locks."""
    assert json.dumps(bill(ROOT)) == json.dumps(document)


def test_another_version_gives_another_serial_number(document: dict[str, Any], tmp_path: Path) -> None:
    """It stands for the content."""
    for name in ("requirements.txt", "requirements-dev.txt", "package-lock.json", "gateway/headgate/installation.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    lock = tmp_path / "requirements.txt"
    lock.write_text(lock.read_text().replace("flask==", "flask==99.", 1))
    assert bill(tmp_path)["serialNumber"] != document["serialNumber"]
