from collections.abc import Callable
from typing import Any

class Writer:
    written: int
    tally_every: int
    def __init__(
        self,
        namespace: bytes,
        prefix_bytes: int,
        mark_at: int,
        max_payload_bytes: int,
        tally_every: int,
        find: Callable[[str], Any],
    ) -> None: ...
    def take(
        self, replies: list[Any], audiences: dict[str, Any], epoch: str, reached: int, head: int, consecutive: bool, /
    ) -> tuple[int, int, int, int, int, int, list[tuple[int, int]], list[tuple[int, int]], list[Any], bool, bool]: ...

def page_frames(
    entries: list[Any],
    namespace: bytes,
    max_payload_bytes: int,
    topic_of: Callable[[bytes], str | None],
    frame_of: Callable[..., Any],
    /,
) -> list[Any]: ...
def is_surely_json(data: bytes, /) -> bool: ...
def usual_head(block: bytes, /) -> tuple[str, str, dict[str, str]] | None: ...
