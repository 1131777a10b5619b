"""The pictures of the examples, which their tests take: `make example-pictures`."""

import os
from pathlib import Path

from playwright.sync_api import Page

EXAMPLES = Path(__file__).parents[2] / "examples"


def picture(page: Page, name: str, width: int = 760, height: int = 400) -> None:
    """Write a page into examples/<name>/<name>.png if EXAMPLE_PICTURES is set; a window of this size in pixels stays."""
    page.set_viewport_size({"width": width, "height": height})
    if "EXAMPLE_PICTURES" in os.environ:
        page.screenshot(path=EXAMPLES / name / f"{name}.png")
