"""The oldest React, Vue and Svelte that the package allows: web/test/stores/frameworks.test.js, with the packed client."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.conftest import BUILT, ROOT

pytestmark = pytest.mark.nightly
OLDEST = {"react": "18.0.0", "react-dom": "18.0.0", "vue": "3.3.0", "svelte": "4.0.0"}


def test_the_oldest_frameworks_will_do(tmp_path: Path) -> None:
    """Servers render, scopes end, stores keep their contract."""
    allowed = json.loads((ROOT / "web/package.json").read_text())["peerDependencies"]
    assert {name: allowed[name] for name in ("react", "vue", "svelte")} == {
        name: f">={OLDEST[name]}" for name in ("react", "vue", "svelte")
    }
    packed = next(BUILT.glob("headgate-*.tgz"))
    (tmp_path / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    page = json.loads((ROOT / "package.json").read_text())["devDependencies"]["jest-environment-jsdom"]
    words = [f"jest-environment-jsdom@{page}", *(f"{name}@{version}" for name, version in OLDEST.items())]
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(
        ["npm", "install", *quiet, *words, f"@vue/server-renderer@{OLDEST['vue']}", str(packed)], cwd=tmp_path, check=True
    )
    # The tests import the package that they are in; here it is one that was installed. React 18.0 has `act` elsewhere.
    test = (ROOT / "web/test/stores/frameworks.test.js").read_text().replace('"#headgate', '"headgate')
    test = test.replace("import { act, createElement", 'import { act } from "react-dom/test-utils";\nimport { createElement')
    (tmp_path / "stores").mkdir()
    (tmp_path / "stores/frameworks.test.js").write_text(test)
    for helper in (ROOT / "web/test").glob("*.js"):
        if not helper.name.endswith(".test.js"):
            shutil.copy(helper, tmp_path)
    words = ["node", "--test", "stores/frameworks.test.js"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "# pass 0" not in done.stdout, done.stdout
