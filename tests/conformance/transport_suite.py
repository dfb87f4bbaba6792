"""Tests of all transports on all event loops; `test_transports.py` runs them.

A `Ground` is a transport on an event loop. A `Tap` is a minimal owner of a stream: it records
events, and checks that none is reported from inside a call to the stream.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop
from tests.support.certificates import Certificates

from requite.errors import TransportError
from requite.transport.address import Address
from requite.transport.aio import dial, listen
from requite.transport.base import Listener, OnStream, Stream

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
SIZES = [1, 2, 65_535, 65_536, 65_537, 1 << 20]


@dataclass
class Ground:
    """A transport on an event loop.

    `run` runs a coroutine to its end. `free_address` returns an address to listen at.
    """

    run: Callable[[Coroutine[Any, Any, None]], None]
    free_address: Callable[[], Address]
    nobody: Callable[[], Address]
    certificates: Certificates | None = None

    async def listen(self, address: Address, on_stream: OnStream) -> Listener:
        tls = None if self.certificates is None else self.certificates.to_listen
        return await listen(address, on_stream, tls)

    async def dial(self, address: Address, on_stream: OnStream) -> None:
        tls = None if self.certificates is None else self.certificates.to_dial
        await dial(address, on_stream, tls=tls)

    async def connect(self, address: Address) -> Tap:
        taps: list[Tap] = []
        await self.dial(address, lambda stream: taps.append(Tap(stream)))
        return taps[0]


class Tap:
    """A stream owner that records events."""

    def __init__(self, stream: Stream, on_bytes: Callable[[Tap, bytes], None] | None = None):
        self.stream = stream
        self.data = bytearray()
        self.events: list[str] = []
        self.reasons: list[str] = []
        self.full_reads: list[bool] = []
        self._on_bytes = on_bytes
        self._changed = asyncio.Event()
        self._inside = False
        stream.start(self, self)

    def call(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call a method of the stream; fail if it reports an event from inside the call."""
        self._inside = True
        method(*arguments)
        self._inside = False

    def write(self, data: bytes) -> None:
        self.call(self.stream.write, data)

    def received(self, link: object, chunk: bytes) -> None:
        assert link is self
        assert chunk
        assert not self._inside
        assert not self.reasons, "bytes after the end"
        self.full_reads.append(self.stream.read_was_full)
        self.data += chunk
        if self._on_bytes is not None:
            self._on_bytes(self, chunk)
        self._changed.set()

    def blocked(self, link: object) -> None:
        assert link is self
        self._note("blocked")

    def writable(self, link: object) -> None:
        assert not self._inside
        self._note("writable")

    def closed(self, link: object, reason: str) -> None:
        assert not self._inside
        self.reasons.append(reason)
        self._note("closed")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self) -> None:
        await self.until(lambda: "closed" in self.events)

    async def until_size(self, size: int) -> None:
        await self.until(lambda: len(self.data) >= size)


def echo(tap: Tap, chunk: bytes) -> None:
    tap.write(chunk)


class Pair:
    """A listener and its connections, with access to both ends."""

    def __init__(
        self, ground: Ground, listener: Listener, accepted: list[Tap], arrived: asyncio.Event
    ) -> None:
        self.ground = ground
        self.listener = listener
        self.accepted = accepted
        self._arrived = arrived

    @classmethod
    async def open(
        cls, ground: Ground, on_bytes: Callable[[Tap, bytes], None] | None = None
    ) -> Pair:
        accepted: list[Tap] = []
        arrived = asyncio.Event()

        def on_stream(stream: Stream) -> None:
            accepted.append(Tap(stream, on_bytes))
            arrived.set()

        listener = await ground.listen(ground.free_address(), on_stream)
        return cls(ground, listener, accepted, arrived)

    async def connect(self) -> tuple[Tap, Tap]:
        """Return the dialling and the accepted end of a new connection."""
        n = len(self.accepted)
        tap = await self.ground.connect(self.listener.address)
        await self.until_accepted(n + 1)
        return tap, self.accepted[n]

    async def until_accepted(self, n: int) -> None:
        async with asyncio.timeout(20):
            while len(self.accepted) < n:
                self._arrived.clear()
                await self._arrived.wait()

    async def close(self, *taps: Tap) -> None:
        self.listener.close()
        for tap in taps:
            tap.stream.abort()
            await tap.until_closed()


class TransportSuite:
    """Tests that each transport passes."""

    @pytest.mark.parametrize("size", SIZES)
    def test_echo(self, ground: Ground, size: int) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground, echo)
            tap, served = await pair.connect()
            data = bytes(range(256)) * (size // 256) + bytes(size % 256)
            tap.write(b"")  # an empty write has no effect
            tap.write(data)
            await tap.until_size(size)
            assert tap.data == data
            await pair.close(tap, served)

        ground.run(scenario())

    def test_the_accepting_end_may_speak_first(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            served.write(b"greeting")
            await tap.until_size(8)
            assert tap.data == b"greeting"
            await pair.close(tap, served)

        ground.run(scenario())

    @pytest.mark.parametrize("closer", ["dialled", "accepted"])
    def test_close_flushes_pending_output(self, ground: Ground, closer: str) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            near, far = (tap, served) if closer == "dialled" else (served, tap)
            data = bytes(range(256)) * (4 << 12)  # 4 MiB: more than all buffers hold
            near.write(data)
            near.call(near.stream.close)
            near.write(b"too late")
            await far.until_closed()
            await near.until_closed()
            assert far.data == data
            assert far.reasons == [""]
            assert near.events.count("closed") == 1
            pair.listener.close()

        ground.run(scenario())

    @pytest.mark.parametrize("aborter", ["dialled", "accepted"])
    def test_abort_ends_both(self, ground: Ground, aborter: str) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            near, far = (tap, served) if aborter == "dialled" else (served, tap)
            near.call(near.stream.abort)
            near.write(b"too late")
            near.call(near.stream.close)
            near.call(near.stream.pause_reading)
            near.call(near.stream.resume_reading)
            await near.until_closed()
            await far.until_closed()
            assert far.data == b""
            assert near.events.count("closed") == far.events.count("closed") == 1
            pair.listener.close()

        ground.run(scenario())

    def test_a_paused_reader_causes_back_pressure(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            served.call(served.stream.pause_reading)
            piece = bytes(range(256)) * 256
            written = 0
            while "blocked" not in tap.events:
                tap.write(piece)
                written += len(piece)
                await asyncio.sleep(0)
                assert written < 64 << 20, "nothing pushes back"
            paused_at = len(served.data)  # one more read may have been in progress
            await asyncio.sleep(0)
            assert paused_at < written
            assert served.stream.has_unread
            assert "writable" not in tap.events[tap.events.index("blocked") :]
            served.call(served.stream.resume_reading)
            await served.until_size(written)
            await tap.until(lambda: tap.events[-1] == "writable")
            assert not served.stream.has_unread
            assert served.data == piece * (written // len(piece))
            assert any(served.full_reads)
            tap.write(b"last")
            await served.until_size(written + 4)
            assert not served.full_reads[-1]
            await pair.close(tap, served)

        ground.run(scenario())

    @pytest.mark.parametrize("end", ["close", "abort"])
    def test_a_paused_reader_learns_of_the_close_of_the_peer(
        self, ground: Ground, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("requite.transport.stream._LOOK_EVERY_S", 0.01)

        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            tap.write(b"first")
            await served.until_size(5)
            served.call(served.stream.pause_reading)
            tap.write(b"last")
            tap.call(getattr(tap.stream, end))
            await served.until_closed()
            assert served.data == b"first", "what is unread is dropped"
            served.call(served.stream.resume_reading)
            await tap.until_closed()
            pair.listener.close()

        ground.run(scenario())

    def test_abort_discards_unread_data(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            tap, served = await pair.connect()
            served.call(served.stream.pause_reading)
            while "blocked" not in tap.events:
                tap.write(bytes(1 << 16))
                await asyncio.sleep(0)
            tap.call(tap.stream.close)
            tap.call(tap.stream.abort)
            await tap.until_closed()
            assert tap.events.count("closed") == 1
            await pair.close(served)

        ground.run(scenario())

    def test_many_connections(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground, echo)
            taps = await asyncio.gather(
                *(ground.connect(pair.listener.address) for _ in range(200))
            )
            for number, tap in enumerate(taps):
                tap.write(number.to_bytes(4, "big") * 100)
            for number, tap in enumerate(taps):
                await tap.until_size(400)
                assert tap.data == number.to_bytes(4, "big") * 100
            await pair.close(*taps)
            for served in pair.accepted:
                await served.until_closed()

        ground.run(scenario())

    def test_an_address_is_reusable_at_once(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground, echo)
            tap, served = await pair.connect()
            served.call(served.stream.close)  # the side that closes first enters TIME_WAIT
            await tap.until_closed()
            pair.listener.close()
            second: list[Tap] = []
            listener = await ground.listen(
                pair.listener.address, lambda stream: second.append(Tap(stream, echo))
            )
            again = await ground.connect(listener.address)
            again.write(b"back")
            await again.until_size(4)
            assert again.data == b"back"
            again.stream.abort()
            await again.until_closed()
            await second[0].until_closed()
            listener.close()

        ground.run(scenario())

    @pytest.mark.parametrize("turns", range(5))
    def test_closing_the_listener_loses_no_connection(self, ground: Ground, turns: int) -> None:
        """An accepted connection becomes a stream; the peers of all others see a close."""

        async def scenario() -> None:
            pair = await Pair.open(ground, echo)
            taps = await asyncio.gather(*(ground.connect(pair.listener.address) for _ in range(5)))
            for _ in range(turns):
                await asyncio.sleep(0)
            pair.listener.close()
            for tap in taps:
                tap.write(b"hello")
            for tap in taps:
                await tap.until(lambda tap=tap: tap.data == b"hello" or "closed" in tap.events)
            for served in pair.accepted:
                served.stream.abort()
                await served.until_closed()
            for tap in taps:
                await tap.until_closed()
                assert tap.data in (b"", b"hello")
            del taps, tap
            gc.collect()  # reports sockets that were left open

        ground.run(scenario())

    def test_an_address_in_use_is_refused(self, ground: Ground) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            with pytest.raises(TransportError, match="cannot listen at") as caught:
                await ground.listen(pair.listener.address, lambda _stream: None)
            assert str(pair.listener.address) in str(caught.value)
            assert str(caught.value).count("cannot listen at") == 1
            await pair.close()

        ground.run(scenario())

    def test_free_addresses_are_distinct_and_have_names(self, ground: Ground) -> None:
        async def scenario() -> None:
            one, two = await Pair.open(ground), await Pair.open(ground)
            assert one.listener.address != two.listener.address
            tap, served = await one.connect()
            assert tap.stream.peer_name == str(one.listener.address)
            assert "://" in served.stream.peer_name
            await one.close(tap, served)
            await two.close()

        ground.run(scenario())

    def test_a_dial_without_a_listener_is_refused(self, ground: Ground) -> None:
        async def scenario() -> None:
            address = ground.nobody()
            with pytest.raises(TransportError) as caught:
                await ground.dial(address, lambda _stream: None)
            text = str(caught.value)
            assert f"cannot connect to {address}: " in text
            assert any(
                reason in text for reason in ("refused", "no such file", "no listener", "connect")
            )
            assert caught.value.may_have_executed is False

        ground.run(scenario())

    @pytest.mark.parametrize("turns", range(8))
    def test_a_cancelled_dial_leaves_no_connection(self, ground: Ground, turns: int) -> None:
        """Whenever the dial is cancelled, the owner of a created stream learns of its end."""

        async def scenario() -> None:
            pair = await Pair.open(ground)
            taps: list[Tap] = []
            dialling = asyncio.create_task(
                ground.dial(pair.listener.address, lambda stream: taps.append(Tap(stream)))
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            dialling.cancel()
            await asyncio.wait([dialling])
            for tap in taps:
                tap.write(b"no harm")
                tap.stream.close()
                await tap.until_closed()
            assert [tap.events.count("closed") for tap in taps] in ([], [1])
            await pair.close()

        ground.run(scenario())

    @pytest.mark.parametrize("how", ["close", "abort"])
    @pytest.mark.parametrize("closer", ["dialled", "accepted"])
    def test_a_stream_may_be_closed_as_soon_as_it_is_open(
        self, ground: Ground, how: str, closer: str
    ) -> None:
        async def scenario() -> None:
            taps: list[Tap] = []
            both = asyncio.Event()

            def take(stream: Stream) -> None:
                taps.append(Tap(stream))
                if len(taps) == 2:
                    both.set()

            def close(stream: Stream) -> None:
                take(stream)
                taps[-1].write(b"last words")
                taps[-1].call(getattr(stream, how))

            listener = await ground.listen(
                ground.free_address(), close if closer == "accepted" else take
            )
            dialling = ground.dial(listener.address, close if closer == "dialled" else take)
            if ground.certificates is not None and (closer, how) == ("accepted", "abort"):
                with pytest.raises(
                    TransportError, match="the connection ended during the TLS handshake"
                ):
                    await dialling
            else:
                await dialling
                async with asyncio.timeout(20):
                    await both.wait()
            for tap in taps:
                await tap.until_closed()
                assert tap.events.count("closed") == 1
            if how == "close":
                assert b"last words" in (taps[0].data, taps[1].data)
            listener.close()
            gc.collect()  # reports sockets that were left open

        ground.run(scenario())
