"""A manager's AMQP connection to a server that refuses, disconnects or speaks another protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from pamqp import commands, frame
from tests.framing.test_amqp import start, tune
from tests.support.amqp_connection import connected

from requite.errors import TransportError
from requite.pool.manager.connection import Channel, Connection
from requite.pool.manager.errors import ConnectionRefused, Refused
from requite.protocols.amqp import methods

_OPENED = bytes(frame.marshal(commands.Connection.OpenOk(), 0))

Answer = Callable[[bytes], bytes | None]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """Listen and answer each received chunk; an answer of None closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            said = answer(chunk)
            if said is None:
                break
            writer.write(said)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"amqp://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v"


def by_turns(*answers: bytes | None) -> Answer:
    """Return a function that returns `answers` in order, then empty answers."""
    left = list(answers)
    return lambda _chunk: left.pop(0) if left else b""


def on_channel(*said: object) -> bytes:
    return b"".join(frame.marshal(each, 1) for each in said)


@asynccontextmanager
async def channel_of(*answers: bytes | None) -> AsyncIterator[tuple[Connection, Channel]]:
    """Open a channel to a server that gives these answers once the channel is open."""
    async with (
        server(by_turns(*_BEGINNING, *answers)) as url,
        connected(url) as connection,
    ):
        yield connection, await connection.channel()


_BEGINNING = (start(), tune(0) + _OPENED, on_channel(commands.Channel.OpenOk()))


# --- in the handshake -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ((start(), frame.marshal(commands.Connection.Close(403, "REFUSED", 0, 0), 0)), 403),
        ((start(), tune() + frame.marshal(commands.Connection.Close(530, "NONE", 10, 40), 0)), 530),
        ((b"AMQP\0\1\0\0",), 0),
        ((start(b"EXTERNAL"),), 0),
    ],
)
async def test_a_refusal_has_its_code(answers: tuple[bytes, ...], code: int) -> None:
    async with server(by_turns(*answers)) as url:
        with pytest.raises(ConnectionRefused) as caught:
            async with connected(url):
                pass
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((None,), "may not be RabbitMQ"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "HTTP"),
        ((start(), None), "may not be RabbitMQ"),
    ],
)
async def test_a_server_without_amqp_is_a_temporary_failure(
    answers: tuple[bytes | None, ...], message: str
) -> None:
    async with server(by_turns(*answers)) as url:
        with pytest.raises(TransportError, match=message):
            async with connected(url):
                pass


async def test_a_closed_port_is_reported() -> None:
    async with server(by_turns()) as url:
        pass
    with pytest.raises(TransportError, match="cannot connect"):
        async with connected(url):
            pass


# --- after it -------------------------------------------------------------------------------------
async def test_a_refusal_closes_only_its_channel() -> None:
    refused = commands.Channel.Close(404, "NOT_FOUND", 50, 10)
    async with channel_of(on_channel(refused)) as (connection, channel):
        with pytest.raises(Refused, match="NOT_FOUND") as caught:
            await channel.ask(methods.queue_declare("q", passive=True))
        assert caught.value.code == 404
        assert channel.is_closed
        assert not connection.closed.done()
        with pytest.raises(TransportError, match="closed"):
            await channel.ask(methods.queue_declare("q", passive=True))
        await channel.close()  # no effect on a closed channel


async def test_pending_operations_fail_when_the_connection_closes() -> None:
    async with channel_of(None) as (connection, channel):
        with pytest.raises(TransportError, match="closed the connection"):
            await channel.ask(methods.queue_declare("q", passive=True))
        assert channel.is_closed
        assert "closed the connection" in (await connection.closed).text
        with pytest.raises(TransportError, match="no connection"):
            await connection.channel()


async def test_a_forced_close_is_reported_with_its_reason() -> None:
    forced = frame.marshal(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0)
    async with channel_of(forced) as (connection, channel):
        with pytest.raises(TransportError, match="320 CONNECTION_FORCED"):
            await channel.ask(methods.get("q"))
        assert "320 CONNECTION_FORCED" in (await connection.closed).text


async def test_a_cancelled_operation_does_not_take_the_next_answer() -> None:
    begin = by_turns(*_BEGINNING)
    both = on_channel(*(commands.Queue.DeclareOk(name, 0, 0) for name in ("first", "second")))

    def answer(chunk: bytes) -> bytes | None:
        return both if b"second" in chunk else begin(chunk)

    async with server(answer) as url, connected(url) as connection:
        channel = await connection.channel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await channel.ask(methods.queue_declare("first", passive=True))
        second = await channel.ask(methods.queue_declare("second", passive=True))
    assert second.queue == "second"


async def test_a_consumer_cancelled_by_rabbitmq_is_reported() -> None:
    cancel = on_channel(commands.Basic.ConsumeOk("q"), commands.Basic.Cancel("q"))
    async with channel_of(cancel) as (_, channel):
        await channel.consume("q", lambda _content: None)
        assert await channel.cancelled == methods.Cancelled("q", by_us=False)
