"""A program that submits requests to Titanic in a loop, written on pyzmq from the text of 9/TSP.

`python -m tests.support.hand_submitter ENDPOINT FILE VERSION` appends a line `TICKET BODY` to FILE
for each acknowledged request. Like the Guide's client, it opens a new socket when a request times
out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.support.live import Process
from tests.support.submitter import SERVICE
from tests.support.zmq_peers import RFCS, HandClient, Silence, Sockets

_PATIENCE_S: Final = 1.0


class HandSubmitter(Process):
    """The program in a child process."""

    def __init__(self, url: str, file: Path, version: str) -> None:
        endpoint = url.replace("mdp://", "tcp://")
        super().__init__("-m", __name__, endpoint, str(file), version)


def _submit(sockets: Sockets, endpoint: str, version: str, file: Path) -> None:
    """Submit requests over one socket until one times out."""
    client = HandClient(sockets, endpoint, RFCS[version])
    try:
        with file.open("a", buffering=1) as tickets:
            while True:
                body = uuid4().hex
                client.request(b"titanic.request", SERVICE.encode(), body.encode())
                kind, _service, answer = client.reply(_PATIENCE_S)
                assert kind == "final"
                if answer[0] == b"200":
                    tickets.write(f"{answer[1].decode()} {body}\n")
    except Silence:
        return
    finally:
        client.socket.close()


if __name__ == "__main__":
    sockets = Sockets()
    while True:
        _submit(sockets, sys.argv[1], sys.argv[3], Path(sys.argv[2]))
