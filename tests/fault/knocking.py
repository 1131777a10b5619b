"""Clients that ignore `Retry-After`, each of which comes back at once after a refusal. They are a process, to have a processor.

`python -m tests.fault.knocking <host> <port> <clients>` goes on until its input ends, and then prints, as JSON, how often it
got each status.
"""

import json
import selectors
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.line_program import LineProgram
from tests.support.websocket_codec import handshake

HANDSHAKE = handshake("localhost", "/socket.io/?EIO=4&transport=websocket")


@contextmanager
def knocking(address: tuple[str, int], clients: int) -> Iterator[dict[str, int]]:
    """Have clients knock; how often each status was answered is there when they have gone."""
    answers: dict[str, int] = {}
    with LineProgram(sys.executable, "-m", "tests.fault.knocking", address[0], str(address[1]), str(clients)) as program:
        try:
            yield answers
        finally:
            answers.update(json.loads(program.end()))


def main() -> None:
    host, port, clients = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ready, answers = selectors.DefaultSelector(), Counter[str]()
    ready.register(sys.stdin, selectors.EVENT_READ)

    def knock() -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((host, port))
        ready.register(sock, selectors.EVENT_WRITE)

    for _ in range(clients):
        knock()
    while True:
        for key, events in ready.select():
            sock = key.fileobj
            if not isinstance(sock, socket.socket):
                print(json.dumps(answers))
                return
            try:
                if events & selectors.EVENT_WRITE:
                    sock.send(HANDSHAKE)
                    ready.modify(sock, selectors.EVENT_READ)
                    continue
                answers[sock.recv(4096)[9:12].decode()] += 1
            except OSError:
                answers["cut"] += 1
            ready.unregister(sock)
            sock.close()
            knock()


if __name__ == "__main__":
    main()
