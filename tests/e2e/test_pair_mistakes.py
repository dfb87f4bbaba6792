"""Mistakes of users of a pair: errors say what happened, and the pair keeps working."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from tests.cli.command import WAIT_S, requite

import requite as package
from requite import Broker
from requite.cli.exit_codes import ExitCode
from requite.cli.pair.report import sentences
from requite.errors import LocalViolation, PairFailed, RemoteFailure
from requite.pair import Pair, PairView, State
from requite.pair.operator import Operator

pytestmark = pytest.mark.e2e

BEAT_S: Final = 0.5  # long enough that no heartbeat is missed on a busy machine


class Places:
    """The addresses at which two servers listen for each other."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = (f"ipc://{folder}/{name}" for name in ("first", "second"))

    def primary(self, **settings: Any) -> Pair:
        defaults = {"bind": self.first, "peer": self.second, "heartbeat": BEAT_S}
        return Pair("primary", **defaults | settings)

    def backup(self, **settings: Any) -> Pair:
        defaults = {"bind": self.second, "peer": self.first, "heartbeat": BEAT_S}
        return Pair("backup", **defaults | settings)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true; fail after `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - `on_change` does not report time
            await asyncio.sleep(0.005)


# --- mistakes in programs -------------------------------------------------------------------------
async def test_an_error_in_on_change_does_not_stop_the_heartbeats(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    views: list[PairView] = []

    def on_change(view: PairView) -> None:
        views.append(view)
        raise RuntimeError("a mistake of the user's")

    async with places.primary(on_change=on_change) as primary, places.backup() as backup:
        await until(lambda: primary.serves and backup.view.state is State.PASSIVE)
        await asyncio.sleep(4 * BEAT_S)  # longer than the backup waits for a heartbeat
        await until(lambda: not backup.view.peer_is_silent)
        await primary.drain()
        assert backup.serves
    assert views[-1].state is State.PASSIVE
    assert "on_change failed" in caplog.text
    assert "a mistake of the user's" in caplog.text


async def test_serve_raises_when_the_pair_has_failed(places: Places) -> None:
    twice = places.primary(), places.primary(bind=places.second, peer=places.first)
    brokers = [Broker("tcp://127.0.0.1:0", pair=pair) for pair in twice]
    first = asyncio.ensure_future(brokers[0].serve())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: brokers[0].endpoints)
        with pytest.raises(PairFailed, match="start one as primary and the other as backup"):
            await brokers[1].serve()
    assert brokers[1].endpoints == []
    first.cancel()  # it fails too if it has connected to the other in time
    with pytest.raises((asyncio.CancelledError, PairFailed)):
        await first
    assert brokers[0].endpoints == []


async def test_a_pair_belongs_to_one_broker_which_starts_it(places: Places) -> None:
    """A second broker would close the pair of the first when it fails to start."""
    pair = places.primary()
    Broker("tcp://127.0.0.1:0", pair=pair)
    async with places.backup() as started:
        for taken in (pair, started):
            with pytest.raises(LocalViolation, match="no other broker uses"):
                Broker("tcp://127.0.0.1:0", pair=taken)


async def test_serve_can_be_cancelled(places: Places) -> None:
    broker = Broker("tcp://127.0.0.1:0", pair=places.primary())
    serving = asyncio.ensure_future(broker.serve())
    await until(lambda: broker.endpoints)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert broker.endpoints == []


# --- wrong addresses ------------------------------------------------------------------------------
async def test_the_reason_for_a_missing_connection_is_logged_once(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer's address belongs to another server, which closes each connection."""
    caplog.set_level(logging.INFO, "requite.pair")
    with closing_server() as (address, dialled):
        async with places.primary(peer=address) as primary:
            await until(lambda: len(dialled) > 2 and "has not sent a heartbeat yet" in caplog.text)
            view = primary.view
    assert f"the connection to {address} ended" in view.trouble
    messages = [each for each in caplog.messages if "has not sent a heartbeat yet" in each]
    assert [each for each in messages if address in each] == messages[-1:]
    assert len(messages) <= 2  # once at level INFO, once as a warning
    assert "the primary is starting" in messages[0]


async def test_status_shows_why_the_servers_are_not_connected(places: Places) -> None:
    nobody = places.second
    async with places.primary() as primary:
        await until(lambda: primary.view.peer_is_silent)
        ended = await asyncio.to_thread(requite, "pair", "status", places.first)
    assert ended.code == ExitCode.OK
    first, second = ended.out.splitlines()
    assert first == "primary  starting, does not serve, epoch 0"
    assert second.startswith(f"backup   not heard of yet (cannot connect to {nobody}: ")


async def test_a_backup_without_a_primary_says_why_it_waits(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    async with places.backup() as backup:
        await until(lambda: backup.view.peer_is_silent and "never heard" in caplog.text)
        lines = sentences(backup.view)
        assert "start the primary, or make this one active" in lines[-1]
        backup.switch()
        assert backup.serves
        assert len(sentences(backup.view)) == 2


async def test_status_at_a_wrong_address_names_the_option_of_the_right_one() -> None:
    with closing_server() as (address, _):
        ended = await asyncio.to_thread(requite, "pair", "status", address, "--timeout", "2")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "--pair-bind" in ended.err
    assert "Traceback" not in ended.err


# --- concurrent operators -------------------------------------------------------------------------
async def test_an_immediate_switch_back_is_reported_to_the_operator(places: Places) -> None:
    def switch_back(view: PairView) -> None:
        if view.state is State.ACTIVE:
            backup.switch()

    backup = places.backup(on_change=switch_back)
    async with places.primary() as primary, backup:
        await until(lambda: primary.serves and backup.view.state is State.PASSIVE)
        async with Operator(places.first, timeout=WAIT_S) as operator:
            with pytest.raises(RemoteFailure, match=r"active again, in epoch 3: .* switched back"):
                await operator.switch()
        assert primary.serves


# --- advice after a closed connection -------------------------------------------------------------
@pytest.mark.parametrize(
    ("scheme", "service", "is_suggested"),
    [("mdp", "echo", True), ("flp", None, False), ("pirate", None, False)],
)
def test_only_errors_about_a_broker_mention_the_passive_broker(
    scheme: str, service: str | None, is_suggested: bool
) -> None:
    with closing_server() as (address, dialled):
        url = f"{scheme}://{address.removeprefix('tcp://')}"
        client = package.Client(url, service=service, timeout=1.5)
        with client, pytest.raises(package.CallError) as caught:
            client.call(b"")
    assert dialled
    assert ("passive broker of a pair" in str(caught.value)) == is_suggested, caught.value


@contextmanager
def closing_server() -> Iterator[tuple[str, list[int]]]:
    """Accept connections at a free port, read at most 64 bytes and close; yield the address.

    The second item is a list that gets an element per connection.
    """
    accepted: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if listener_is_closed:
                        return
                    accepted.append(len(accepted))
                    connection.recv(64)

        listener_is_closed: list[bool] = []
        thread = Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"tcp://{host}:{port}", accepted
        finally:
            listener_is_closed.append(True)
            with socket.create_connection((host, port)):
                thread.join()
