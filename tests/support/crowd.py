"""Many connections to a broker that have to be closed by it."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import monotonic


def await_closed(crowd: list[socket.socket], serve: Callable[[], object], within_s: float) -> None:
    """Wait until the broker has closed all connections; `serve` checks that it serves meanwhile."""
    waiting = {member.fileno(): member for member in crowd}
    poll = select.epoll()
    for number in waiting:
        poll.register(number, select.EPOLLIN)
    end = monotonic() + within_s
    while waiting:
        assert monotonic() < end, f"{len(waiting)} connections are still open"
        for number, _ in poll.poll(0.5, 1000):
            if not _still_open(waiting[number]):
                poll.unregister(number)
                del waiting[number]
        serve()
    poll.close()


def _still_open(member: socket.socket) -> bool:
    """Read; return False if the broker has closed the connection."""
    try:
        return bool(member.recv(1 << 16))
    except ConnectionResetError:
        return False
