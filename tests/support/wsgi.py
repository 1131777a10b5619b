"""The `start_response` of a WSGI request that a test makes itself, which remembers the status and the headers of the answer."""

from collections.abc import Callable


class Said:
    """Call it as a server's `start_response`; bytes that an application writes past its answer are in `written`."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: dict[str, str] = {}
        self.written: list[bytes] = []

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: object = None, /) -> Callable[[bytes], object]:
        assert not self.status, "answered twice"
        self.status, self.headers = status, dict(headers)
        return self.written.append
