"""The header lines of a request: what pywsgi asks for, and what is refused before it is kept."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.request_headers import MAX_HEADER_BYTES, MAX_HEADER_LINES, RequestHeaders


def read(text: bytes) -> RequestHeaders:
    return RequestHeaders(BytesIO(text))


def test_values_are_found_by_name_whatever_its_case() -> None:
    """Leading and trailing white space is not part of a value."""
    headers = read(b"Host: example.com\r\nCONNECTION:  Upgrade \r\ncontent-type: text/plain\r\n\r\n")
    assert headers.status == ""
    assert (headers.get("host"), headers.getheader("Connection"), headers.typeheader) == ("example.com", "Upgrade", "text/plain")
    assert headers.get("absent", "default") == "default"
    assert headers.headers == ["Host: example.com\r\n", "CONNECTION:  Upgrade \r\n", "content-type: text/plain\r\n"]


def test_the_body_is_left_in_the_reader() -> None:
    """Reading stops behind the empty line."""
    reader = BytesIO(b"Content-Length: 4\r\n\r\nbody")
    RequestHeaders(reader)
    assert reader.read() == b"body"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"no colon\r\n\r\n", "Malformed"),
        (b": no name\r\n\r\n", "Malformed"),
        (b"Host : example.com\r\n\r\n", "Malformed"),
        (b"Host: a\r\n folded: b\r\n\r\n", "Malformed"),
        (b"X: a\0b\r\n\r\n", "Malformed"),
        (b"H\xf6st: a\r\n\r\n", "Malformed"),
        (b"Host: a\r\nHost: b\r\n\r\n", "Two host"),
        (b"Content-Length: 1\r\ncontent-length: 2\r\n\r\n", "Two content-length"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", "Two transfer-encoding"),
        (b"Content-Length: +1\r\n\r\n", "Malformed content-length"),
        (b"Content-Length: 1_0\r\n\r\n", "Malformed content-length"),
        (b"Content-Length:\r\n\r\n", "Malformed content-length"),
        (b"Content-Length: \xb2\r\n\r\n", "Malformed content-length"),
        (b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "Both"),
        (b"Host: a", "too early"),
        (b"Host: a\r\n", "too early"),
        (b"X: " + b"a" * MAX_HEADER_BYTES + b"\r\n\r\n", "more than"),
        (b"X: a\r\n" * (MAX_HEADER_LINES + 1) + b"\r\n", "More than"),
        (b"Padding: " + b"a" * 1000 + b"\r\n", "too early"),
    ],
)
def test_headers_that_are_not_plain_are_refused(text: bytes, told: str) -> None:
    """One word about what is wrong; pywsgi answers 400."""
    assert told in read(text).status


def test_nothing_beyond_the_limit_is_read() -> None:
    """A header that never ends is cut off at the limit, not when it ends."""
    reader = BytesIO(b"X: " + b"a" * 10_000_000)
    assert "more than" in RequestHeaders(reader).status
    assert reader.tell() <= MAX_HEADER_BYTES + 1


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail(text: bytes) -> None:
    """The answer to any bytes is headers or a status."""
    assert isinstance(read(text).status, str)


@pytest.mark.no_cover
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True).map(str.lower),
        st.text(st.characters(codec="latin-1", exclude_characters="\0\r\n"), max_size=40),
        max_size=20,
    )
)
def test_well_formed_headers_come_back(wanted: dict[str, str]) -> None:
    """Names and values survive."""
    headers = read("".join(f"{name}: {value}\r\n" for name, value in wanted.items()).encode("latin-1") + b"\r\n")
    assert headers.status == ""
    assert {name: headers.get(name) for name in wanted} == {name: value.strip(" \t") for name, value in wanted.items()}
