"""Clients and services with one more layer each, which show the cost of each layer.

    python -m bench.sp.layer_peer PART JOB

`sockets-client` and `sockets-service` do not parse messages: all messages of a run have one size,
so that counting bytes counts messages. Both write the answers to a read once, at the end of the
turn, as shells do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from bench.job import Job
from bench.loop import run
from bench.sp.measure import Counter
from bench.sp.peer import play, say_where
from requite.engine import Finished, Submit
from requite.framing.sp import SpStream
from requite.protocols.scalability.policy import PipeOptions, RepPolicy
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import REP, REQ
from requite.request import Status
from requite.shell.aio import AioShell
from requite.shell.connections import Connections, Endpoint
from requite.transport.address import TcpAddress
from requite.transport.aio import dial, listen
from requite.transport.base import Stream

_HEADER_SIZE: Final = 8
_TAG: Final = b"\x80\x00\x00\x01"

Turn = Callable[[bytes], Sequence[bytes]]
"""Handles a chunk of a stream; returns the pieces to send."""


class End:
    """The owner of a stream; it sends all answers to a chunk with one write."""

    def __init__(self, stream: Stream, opening: bytes, turn: Turn) -> None:
        self._stream = stream
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        stream.start(self, None)
        stream.write(opening)

    def received(self, _link: Any, chunk: bytes) -> None:
        """Answer a chunk, at the end of the turn."""
        pieces = self._turn(chunk)
        if pieces:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out += pieces

    def _flush(self) -> None:
        data = b"".join(self._out)
        self._out.clear()
        self._stream.write(data)

    def blocked(self, _link: Any) -> None:
        """Ignored: the window limits the waiting bytes."""

    def writable(self, _link: Any) -> None:
        """Ignored, as in `blocked`."""

    def closed(self, _link: Any, _reason: str) -> None:
        """Ignored: the runner ends the processes."""


# --- loop and sockets -----------------------------------------------------------------------------
async def ask_by_sockets(job: Job) -> None:
    """Send a window of prepared requests, and one request per reply, counted in bytes."""
    counter = Counter(job)
    framing = SpStream(REQ, REP)
    payload_size = len(_TAG) + len(job.body)
    request = payload_size.to_bytes(8) + _TAG + job.body
    surplus = -_HEADER_SIZE

    def turn(chunk: bytes) -> Sequence[bytes]:
        nonlocal surplus
        if surplus < 0:  # only the service's header so far
            surplus += len(chunk)
            return [request * job.window]
        count, surplus = divmod(surplus + len(chunk), len(request))
        counter.answered += count
        return [request * count]

    await dial(TcpAddress("127.0.0.1", job.port), lambda it: End(it, framing.opening(), turn))
    await counter.done.wait()


async def serve_by_sockets(_job: Job) -> None:
    """Echo all bytes but the header."""

    def turn_of_one() -> Turn:
        surplus = -_HEADER_SIZE

        def turn(chunk: bytes) -> Sequence[bytes]:
            nonlocal surplus
            if surplus < 0:
                begin, surplus = min(len(chunk), -surplus), surplus + len(chunk)
                chunk = chunk[begin:]
            return [chunk] if chunk else []

        return turn

    await _listen(lambda it: End(it, SpStream(REP, REQ).opening(), turn_of_one()))


async def _listen(on_stream: Callable[[Stream], object]) -> None:
    listener = await listen(TcpAddress("127.0.0.1", 0), on_stream)
    say_where(listener.address)
    await asyncio.Event().wait()


# --- and framing ----------------------------------------------------------------------------------
async def ask_by_framing(job: Job) -> None:
    """Parse replies, and send the body of each as the next request, with a tag."""
    counter = Counter(job)
    framing = SpStream(REQ, REP)
    first = [[_TAG, job.body]] * job.window

    def turn(chunk: bytes) -> Sequence[bytes]:
        was_ready = framing.ready
        messages = framing.receive(chunk)
        counter.answered += len(messages)
        out: list[bytes] = []
        for message in messages if was_ready else first:
            framing.encode([_TAG, message[-1][-len(job.body) :]], out)
        return out

    await dial(TcpAddress("127.0.0.1", job.port), lambda it: End(it, framing.opening(), turn))
    await counter.done.wait()


async def serve_by_framing(_job: Job) -> None:
    """Parse requests, and echo each in two pieces."""

    def end_of(stream: Stream) -> End:
        framing = SpStream(REP, REQ)

        def turn(chunk: bytes) -> Sequence[bytes]:
            out: list[bytes] = []
            for [payload] in framing.receive(chunk):
                framing.encode([payload[:4], payload[4:]], out)
            return out

        return End(stream, framing.opening(), turn)

    await _listen(end_of)


# --- and engine and host --------------------------------------------------------------------------
async def ask_by_shell(job: Job) -> None:
    """Make the next call when a reply is delivered, without futures and tasks."""
    counter = Counter(job)
    calls = [Submit(token, "", (job.body,), inf) for token in range(job.window)]

    def deliver_all(pairs: Sequence[tuple[int, Any]]) -> None:
        counter.answered += len(pairs)
        for token, _reply in pairs:
            shell.host.submit_soon(calls[token])

    endpoint = Endpoint(
        TcpAddress("127.0.0.1", job.port), lambda: SpStream(REQ, REP), PipeOptions()
    )
    shell = AioShell(
        ScalabilityClient(first_id=0),
        Connections(keep=[endpoint]),
        deliver=lambda token, what: deliver_all([(token, what)]),
        deliver_all=deliver_all,
    )
    shell.start()
    for call in calls:
        shell.submit(call)
    await counter.done.wait()


async def serve_by_shell(job: Job) -> None:
    """Answer a request when it is delivered, without handlers and tasks."""

    def deliver_all(pairs: Sequence[tuple[Any, Any]]) -> None:
        for token, request in pairs:
            shell.host.submit_soon(Finished(token, request.frames, Status.OK))

    endpoint = Endpoint(TcpAddress("127.0.0.1", 0), lambda: SpStream(REP, REQ), PipeOptions())
    engine = ScalabilityWorker(RepPolicy(capacity=job.capacity), first_id=0)
    shell = AioShell(
        engine,
        Connections(listen=[endpoint]),
        deliver=lambda token, what: deliver_all([(token, what)]),
        deliver_all=deliver_all,
    )
    await shell.listen_all()
    say_where(shell.addresses[0])
    await asyncio.Event().wait()


if __name__ == "__main__":
    play(
        {
            "sockets-client": lambda job: run(ask_by_sockets(job)),
            "sockets-service": lambda job: run(serve_by_sockets(job)),
            "framing-client": lambda job: run(ask_by_framing(job)),
            "framing-service": lambda job: run(serve_by_framing(job)),
            "shell-client": lambda job: run(ask_by_shell(job)),
            "shell-service": lambda job: run(serve_by_shell(job)),
        }
    )
