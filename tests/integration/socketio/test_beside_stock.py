"""One application on python-socketio's own server and on ours, over each transport, with python-socketio's own client.

Both must send every client the same, in the same order, and so must ours under each web server that carries it.
docs/socketio.md has the intended differences, and not this chat. test_deployments.py has the servers in separate packages.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.support.certificates import Authority
from tests.support.served_chat import POLLING, UPGRADED, WEBSOCKET, Served, commanded, evening, serving, talk_over_tls

TRANSPORTS = pytest.mark.parametrize("transports", [WEBSOCKET, POLLING, UPGRADED], ids=["websocket", "polling", "upgraded"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def gunicorn() -> Iterator[Served]:
    application = "tests.support.chat:application('headgate')"
    with commanded(
        lambda address: [sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", address, "--no-control-socket", application]
    ) as served:
        yield served


@pytest.fixture(scope="module")
def chats(authority: Authority) -> Iterator[dict[str, Served]]:
    ways = {kind: serving(kind) for kind in ("stock", "headgate", "pywsgi")}
    ways |= {"tls": serving("tls", *authority.issue("127.0.0.1")), "gunicorn": gunicorn()}
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        yield dict(zip(ways, pool.map(stack.enter_context, ways.values()), strict=True))


@TRANSPORTS
def test_every_server_tells_everybody_the_same(
    chats: dict[str, Served], authority: Authority, transports: tuple[str, ...]
) -> None:
    """Events, acknowledgements, attachments, refusals and goodbyes, in the same order."""
    # python-socketio's client uses a WebSocket from two threads, which OpenSSL does not allow, and loses a message now and then.
    kinds = [kind for kind in chats if kind != "tls" or transports == POLLING]
    with ThreadPoolExecutor() as pool:
        evenings = pool.map(lambda kind: evening(chats[kind].url, transports, ca_file=authority.ca_file), kinds)
        told = dict(zip(kinds, evenings, strict=True))

    for kind in kinds:
        assert told[kind] == told["stock"], kind
    names = [name for name, _ in told["headgate"]["ana"]]
    assert names.count("line") == 10
    assert names[-1] == "left"


@pytest.mark.parametrize("kind", ["headgate", "gunicorn"])
def test_a_client_that_reads_gets_every_burst(chats: dict[str, Served], kind: str) -> None:
    """Far more than a queue holds, events of 300 KB attachments, and 300 events on polling; the answers come after them."""
    port = urlsplit(chats[kind].url).port or 0
    websocket, polling = WebSocket(port), Polling(port)
    with closing(websocket):
        websocket.send('40/chat,{"name":"ana"}', '42/chat,1["history",10000,1000]')
        assert websocket.text().startswith("40/chat,")
        assert websocket.text().startswith('42/chat,["welcome"')
        for number in range(10_000):
            assert websocket.text() == f'42/chat,["line",{number},"{"x" * 1000}"]'
        assert websocket.text() == '43/chat,1["that is all"]'
        websocket.send('42/chat,2["album",10,300000]')
        assert websocket.text().startswith('4510-/chat,["photos",')
        assert [websocket.receive() for _ in range(10)] == [bytes([number]) * 300_000 for number in range(10)]
        assert websocket.text() == '43/chat,2["that is all"]'

    polling.post('40/chat,{"name":"ben"}')
    messages = polling.messages()
    assert next(messages).startswith("40/chat,")
    assert next(messages).startswith('42/chat,["welcome"')
    polling.post('42/chat,1["history",300]')
    assert [next(messages) for _ in range(300)] == [f'42/chat,["line",{number},"{"x" * 100}"]' for number in range(300)]
    assert next(messages) == '43/chat,1["that is all"]'


def test_a_websocket_is_carried_under_tls(chats: dict[str, Served], authority: Authority) -> None:
    talk_over_tls(chats["tls"].url, authority.ca_file)
