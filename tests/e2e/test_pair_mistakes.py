"""What users of a pair do wrong: each is told what happened, and nothing else breaks by it."""

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
from requite.cli.pair.asking import sentences
from requite.errors import LocalViolation, PairFailed, RemoteFailure
from requite.pair import Pair, PairView, State
from requite.pair.operator import Operator

pytestmark = pytest.mark.e2e

BEAT_S: Final = 0.5  # none is taken for dead for want of the processor


class Places:
    """Where two servers listen for each other."""

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


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - a pair tells of changes, but not of time
            await asyncio.sleep(0.005)


# --- a program's own mistakes ---------------------------------------------------------------------
async def test_a_mistake_in_on_change_does_not_stop_the_heartbeats(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[PairView] = []

    def hear(view: PairView) -> None:
        told.append(view)
        raise RuntimeError("a mistake of the user's")

    async with places.primary(on_change=hear) as primary, places.backup() as backup:
        await until(lambda: primary.serves and backup.view.state is State.PASSIVE)
        await asyncio.sleep(4 * BEAT_S)  # longer than the backup would wait for a word
        await until(lambda: not backup.view.peer_is_silent)
        await primary.drain()
        assert backup.serves
    assert told[-1].state is State.PASSIVE
    assert "on_change failed" in caplog.text
    assert "a mistake of the user's" in caplog.text


async def test_a_broker_that_is_run_ends_when_the_pair_has_failed(places: Places) -> None:
    twice = places.primary(), places.primary(bind=places.second, peer=places.first)
    brokers = [Broker("tcp://127.0.0.1:0", pair=pair) for pair in twice]
    first = asyncio.ensure_future(brokers[0].serve())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: brokers[0].endpoints)
        with pytest.raises(PairFailed, match="start one as primary and the other as backup"):
            await brokers[1].serve()
    assert brokers[1].endpoints == []
    first.cancel()  # it fails as well if it has reached the other one in time
    with pytest.raises((asyncio.CancelledError, PairFailed)):
        await first
    assert brokers[0].endpoints == []


async def test_a_pair_belongs_to_one_broker_which_starts_it(places: Places) -> None:
    """A second one would end it for the first, when it finds that it cannot start."""
    pair = places.primary()
    Broker("tcp://127.0.0.1:0", pair=pair)
    async with places.backup() as started:
        for taken in (pair, started):
            with pytest.raises(LocalViolation, match="no other broker uses"):
                Broker("tcp://127.0.0.1:0", pair=taken)


async def test_a_broker_that_is_run_can_be_cancelled(places: Places) -> None:
    broker = Broker("tcp://127.0.0.1:0", pair=places.primary())
    serving = asyncio.ensure_future(broker.serve())
    await until(lambda: broker.endpoints)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert broker.endpoints == []


# --- wrong addresses ------------------------------------------------------------------------------
async def test_who_dials_in_vain_says_why_and_says_it_once(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer's address is that of something else, which hangs up: all that is heard of it."""
    caplog.set_level(logging.INFO, "requite.pair")
    with hanging_up() as (address, dialled):
        async with places.primary(peer=address) as primary:
            await until(lambda: len(dialled) > 2 and "has not sent a heartbeat yet" in caplog.text)
            view = primary.view
    assert f"the connection to {address} ended" in view.trouble
    told = [each for each in caplog.messages if "has not sent a heartbeat yet" in each]
    assert [each for each in told if address in each] == told[-1:]
    assert len(told) <= 2  # once as news, once as a warning
    assert "the primary is starting" in told[0]


async def test_status_tells_what_keeps_the_two_apart(places: Places) -> None:
    nobody = places.second
    async with places.primary() as primary:
        await until(lambda: primary.view.peer_is_silent)
        ended = await asyncio.to_thread(requite, "pair", "status", places.first)
    assert ended.code == ExitCode.OK
    first, second = ended.out.splitlines()
    assert first == "primary  starting, does not serve, epoch 0"
    assert second.startswith(f"backup   not heard of yet (cannot connect to {nobody}: ")


async def test_a_lonely_backup_says_why_it_waits(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    async with places.backup() as backup:
        await until(lambda: backup.view.peer_is_silent and "never heard" in caplog.text)
        lines = sentences(backup.view)
        assert "start the primary, or make this one active" in lines[-1]
        backup.switch()
        assert backup.serves
        assert len(sentences(backup.view)) == 2


async def test_status_at_another_address_tells_which_one_is_meant() -> None:
    with hanging_up() as (address, _):
        ended = await asyncio.to_thread(requite, "pair", "status", address, "--timeout", "2")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "--pair-bind" in ended.err
    assert "Traceback" not in ended.err


# --- operators in each other's way ----------------------------------------------------------------
async def test_who_is_switched_back_at_once_is_told(places: Places) -> None:
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


# --- who may have hung up -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("scheme", "service", "is_told"),
    [("mdp", "echo", True), ("flp", None, False), ("pirate", None, False)],
)
def test_only_of_a_broker_it_is_said_that_it_may_be_the_passive_one(
    scheme: str, service: str | None, is_told: bool
) -> None:
    with hanging_up() as (address, dialled):
        url = f"{scheme}://{address.removeprefix('tcp://')}"
        client = package.Client(url, service=service, timeout=1.5)
        with client, pytest.raises(package.CallError) as caught:
            client.call(b"")
    assert dialled
    assert ("passive broker of a pair" in str(caught.value)) == is_told, caught.value


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[int]]]:
    """Listen at a free port, say hello as ZeroMQ does, and hang up; yield the address, and one
    number for each who came."""
    came: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if listener_is_closed:
                        return
                    came.append(len(came))
                    connection.recv(64)

        listener_is_closed: list[bool] = []
        thread = Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"tcp://{host}:{port}", came
        finally:
            listener_is_closed.append(True)
            with socket.create_connection((host, port)):
                thread.join()
