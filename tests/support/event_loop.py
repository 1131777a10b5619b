"""Coroutines in tests: each has a separate loop and thread, as Playwright keeps one running in the thread of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Return what a coroutine returns, or raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()
