"""The software bill of materials: CycloneDX 1.6 JSON from the lock files, `make sbom`.

In: requirements.txt, requirements-dev.txt, package-lock.json. Out: every package that they pin, with its version, purl and
hashes; those for building and testing have the scope `excluded`. The same locks give the same bytes: there is no
time in it and no random number.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
SPECIFICATION = "1.6"
# Optional for the npm package, and part of the demo in the wheel. The other optional ones are frameworks of an application.
BUNDLED = {"backbone", "underscore"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def python_packages(lock: Path, scope: str) -> Iterator[dict[str, Any]]:
    """Yield a component for each pin of a requirements file."""
    for block in re.split(r"^(?=[A-Za-z0-9._-]+==)", lock.read_text(), flags=re.MULTILINE):
        if pin := _PIN.match(block):
            name, version = pin[1].lower(), pin[2]
            component = _component("pypi", name, version, scope)
            # One hash for each file of the release: which one is installed depends on the machine.
            files = [{"alg": "SHA-256", "content": found} for found in _HASH.findall(block)]
            # The package by name: which index it comes from is the installer's business.
            release = {"type": "distribution", "url": component["purl"], "hashes": files}
            yield {**component, "externalReferences": [release]}


def javascript_packages(lock: Path) -> Iterator[dict[str, Any]]:
    """Yield a component for each foreign package of a package-lock.json."""
    for path, entry in json.loads(lock.read_text())["packages"].items():
        if "node_modules/" not in path or entry.get("link"):
            continue
        name = path.rpartition("node_modules/")[2]
        tested_only = entry.get("dev") or (entry.get("devOptional") and name not in BUNDLED)
        component = _component("npm", name, entry["version"], "excluded" if tested_only else "required")
        algorithm, _, digest = entry.get("integrity", "").partition("-")
        if algorithm == "sha512":
            component["hashes"] = [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}]
        yield component


def bill(root: Path) -> dict[str, Any]:
    """Return the whole document for a checkout."""
    found: dict[str, dict[str, Any]] = {}
    # The scope `required` wins over that of the same version for tests.
    for component in (
        *python_packages(root / "requirements.txt", "required"),
        *python_packages(root / "requirements-dev.txt", "excluded"),
        *javascript_packages(root / "package-lock.json"),
    ):
        first = found.setdefault(component["purl"], component)
        if component["scope"] == "required":
            first["scope"] = "required"
    components = [found[purl] for purl in sorted(found)]
    version = _own_version(root)
    content = json.dumps(components, sort_keys=True)
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "headgate", "name": "headgate", "version": version}},
        "components": components,
    }


def _component(kind: str, name: str, version: str, scope: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{quote(name, safe='/')}@{quote(version, safe='')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "scope": scope, "purl": purl}


def _own_version(root: Path) -> str:
    found = re.search(r'^__version__ = "([^"]+)"', (root / "gateway/headgate/installation.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def main() -> None:
    """Write the document to the given path, or to standard output."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description=main.__doc__)
    parser.add_argument("path", metavar="FILE", nargs="?", type=Path)
    path = parser.parse_args().path
    text = json.dumps(bill(ROOT), indent=2) + "\n"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
