"""Questions about clients with a refusal before Redis is asked."""

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from headgate import InvalidRequest
from headgate.services.clients import Clients

NOWHERE = "unix:///nonexistent/no.sock"
NO_PLACES = [b"", b"{}", b'["user","a","b"]', b'["queue",true,"a"]', b'["queue",%d,"a"]' % 10**40, b"[" * 5000]


@pytest.mark.parametrize("text", NO_PLACES, ids=lambda text: text[:20].decode())
def test_an_after_that_no_page_gave_is_refused(text: bytes) -> None:
    """Whatever a request brings, also numbers of any size and lists of any depth."""
    with pytest.raises(InvalidRequest, match="after: expected"):
        Clients(NOWHERE).page(sort="queue", after=urlsafe_b64encode(text).decode())


@pytest.mark.parametrize("arguments", [{"reason": ""}, {"session": "a" * 65}, {"within": "orders"}])
def test_a_disconnect_of_nobody_is_refused(arguments: dict[str, Any]) -> None:
    """A name in place of a list would mean its letters, which no client is in."""
    with pytest.raises(InvalidRequest, match=f"{next(iter(arguments))}: expected"):
        Clients(NOWHERE).disconnect(**{"session": "s"} | arguments)
