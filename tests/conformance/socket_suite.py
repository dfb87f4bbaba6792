"""What every transport over sockets must do on top of `TransportSuite`."""

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
    """Send past the event loop; return how many bytes the kernel took."""
    try:
        return os.write(sock.fileno(), bytes(size))
    except BlockingIOError:
        return 0


class SocketSuite(TransportSuite):
    """What those over sockets do on top."""

    def test_half_close(self, ground: Ground, raw: Callable[[Address], Awaitable[Any]]) -> None:
        """A peer that says its last word and then listens gets its answer."""

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
    def test_what_a_peer_that_hung_up_has_left_unread_is_dropped(
        self,
        ground: Ground,
        raw: Callable[[Address], Awaitable[Any]],
        end: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Otherwise the kernel's buffer, megabytes perhaps, passes every limit of the engine."""
        monkeypatch.setattr("requite.transport.stream._LOOK_EVERY_S", 0.01)

        async def scenario() -> None:
            pair = await Pair.open(ground)
            _, writer = await raw(pair.listener.address)
            await pair.until_accepted(1)
            served = pair.accepted[0]
            served.call(served.stream.pause_reading)
            assert _send_some(writer.get_extra_info("socket"), 1 << 15)  # the FIN follows at once
            getattr(writer, end)()
            await served.until_closed()
            assert served.data == b""
            assert served.reasons == [HUNG_UP_UNREAD]
            writer.close()
            await pair.close()

        ground.run(scenario())

    def test_a_peer_that_hung_up_behind_a_full_window_is_found_out_by_a_reply(
        self,
        ground: Ground,
        raw: Callable[[Address], Awaitable[Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Its FIN waits behind bytes for which there is no room; a reply is answered by an RST."""
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
