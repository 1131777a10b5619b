"""Engine.IO 4 over real connections, with a case for each thing that only a socket, or the real loop, can show.

The rules are proven where they are decided, in tests/unit/transport: answers to requests (test_engine.py), frames
(test_frame_parser.py), heartbeat, upgrade and end (test_session.py and the files beside it).
"""

from tests.integration.transport.clients import Polling, WebSocket, closing
from tests.integration.transport.server_process import StartServer


def test_the_kernel_is_told_to_send_at_once_and_to_hold_little(start_server: StartServer) -> None:
    """TCP_NODELAY (without it an answer may wait 40 ms) and SO_SNDBUF (Linux doubles it, socket(7)), after a direct handshake
    and after an upgrade."""
    server = start_server(send_buffer_bytes=32768)
    direct = WebSocket(server.port)
    session = Polling(server.port)
    moved = WebSocket(server.port, sid=session.sid)
    with closing(direct, moved):
        moved.send("2probe")
        assert moved.receive() == "3probe"
        moved.send("5", "2done")
        assert moved.receive() == "3done"

        assert server.debug("sessions") == [[1, 65536]] * 2
