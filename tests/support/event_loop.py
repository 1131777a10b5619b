"""Coroutines in tests: each has a separate loop and thread, as Playwright keeps one running in the thread of the tests."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()
