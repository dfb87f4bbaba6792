"""Tests of all socket transports, in addition to `TransportSuite`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conformance.transport_suite import Ground, Pair, TransportSuite, echo

from requite.transport.address import Address
from requite.transport.base import HUNG_UP_UNREAD


def _send_some(sock: Any, size: int) -> int:
    """Write to the socket directly; return how many bytes the kernel accepted."""
    try:
        return os.write(sock.fileno(), bytes(size))
    except BlockingIOError:
        return 0


class SocketSuite(TransportSuite):
    """Tests of socket transports, in addition to `TransportSuite`."""

    def test_half_close(self, ground: Ground, raw: Callable[[Address], Awaitable[Any]]) -> None:
        """A peer that half-closes its connection after a request still gets the reply."""

        async def scenario() -> None:
            pair = await Pair.open(ground, echo)
            reader, writer = await raw(pair.listener.address)
            writer.write(b"last words" * 1000)
            writer.write_eof()
            async with asyncio.timeout(20):
                assert await reader.read() == b"last words" * 1000
            writer.close()
            await pair.accepted[0].until_closed()
            assert pair.accepted[0].reasons == [""]
            await pair.close()

        ground.run(scenario())

    @pytest.mark.parametrize("end", ["write_eof", "close"])
    def test_unread_data_of_a_closed_peer_is_dropped(
        self,
        ground: Ground,
        raw: Callable[[Address], Awaitable[Any]],
        end: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Unread data of a closed peer could otherwise exceed the engine's limits by megabytes."""
        monkeypatch.setattr("requite.transport.stream._LOOK_EVERY_S", 0.01)

        async def scenario() -> None:
            pair = await Pair.open(ground)
            _, writer = await raw(pair.listener.address)
            await pair.until_accepted(1)
            served = pair.accepted[0]
            served.call(served.stream.pause_reading)
            assert _send_some(writer.get_extra_info("socket"), 1 << 15)  # followed by a FIN
            getattr(writer, end)()
            await served.until_closed()
            assert served.data == b""
            assert served.reasons == [HUNG_UP_UNREAD]
            writer.close()
            await pair.close()

        ground.run(scenario())

    def test_a_reply_detects_a_close_behind_a_full_window(
        self,
        ground: Ground,
        raw: Callable[[Address], Awaitable[Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The FIN waits behind data that the kernel cannot buffer. A reply triggers an RST."""
        monkeypatch.setattr("requite.transport.stream._LOOK_EVERY_S", 0.01)

        async def scenario() -> None:
            pair = await Pair.open(ground)
            _, writer = await raw(pair.listener.address)
            await pair.until_accepted(1)
            served = pair.accepted[0]
            served.call(served.stream.pause_reading)
            while _send_some(writer.get_extra_info("socket"), 1 << 20):
                pass
            writer.close()
            await writer.wait_closed()
            served.write(b"reply")
            await served.until_closed()
            assert len(served.data) <= 1 << 16
            await pair.close()

        ground.run(scenario())

    def test_a_reset_is_reported(
        self, ground: Ground, raw: Callable[[Address], Awaitable[Any]]
    ) -> None:
        async def scenario() -> None:
            pair = await Pair.open(ground)
            _, writer = await raw(pair.listener.address)
            await pair.until_accepted(1)
            pair.accepted[0].write(b"unread by the peer")
            writer.transport.abort()
            await pair.accepted[0].until_closed()
            assert len(pair.accepted[0].reasons) == 1
            await pair.close()

        ground.run(scenario())
