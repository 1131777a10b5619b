"""Work counted in steps of the interpreter, a cost that no busy machine can change."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def steps_during(work: Callable[[], Any]) -> int:
    """Return how many lines of Python `work` runs, and how many functions of Python and C it calls.

    Without the garbage of other tests, as its finalizers would count.
    """
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    tracer = sys.gettrace()  # coverage's, perhaps
    gc.disable()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        sys.settrace(tracer)
        gc.enable()
    return count
