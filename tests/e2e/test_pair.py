"""`Pair` on a real event loop, the command `requite pair`, and a user-written server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.command import ENVIRONMENT, WAIT_S, requite
from tests.support.builds import pure_only
from tests.support.live import ROOT, eventually

from requite.errors import (
    CallTimeout,
    ConfigurationError,
    LocalViolation,
    PairFailed,
    RemoteFailure,
    TransportError,
)
from requite.pair import Pair, PairRole, PairView, State
from requite.pair.operator import Operator
from requite.protocols.binarystar.wire import Word

pytestmark = pytest.mark.e2e

# Long enough that a busy machine does not make a server miss its heartbeats.
HEARTBEAT: Final = 0.5
ROUNDS: Final = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))


# --- in this process ------------------------------------------------------------------------------
class LocalPair:
    """A primary and a backup, and the views passed to the `on_change` of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.views: dict[str, list[PairView]] = {"primary": [], "backup": []}
        self.primary, self.backup = self.make("primary"), self.make("backup")

    def address(self, role: str) -> str:
        """Return the address at which a server listens for its peer."""
        return f"ipc://{self.folder}/{role}"

    def make(self, role: str, **settings: Any) -> Pair:
        """Make one server of the pair."""
        other = "backup" if role == "primary" else "primary"
        defaults: dict[str, Any] = {
            "bind": self.address(role),
            "peer": self.address(other),
            "heartbeat": HEARTBEAT,
            "on_change": self.views[role].append,
        }
        return Pair(role, **defaults | settings)  # type: ignore[arg-type]

    async def start(self) -> None:
        """Start both, and wait until the primary is active and the backup passive."""
        await self.primary.start()
        await self.backup.start()
        await until(lambda: self.primary.serves and self.backup.view.state is State.PASSIVE)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true; fail after `WAIT_S`."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - `on_change` does not report time
            await asyncio.sleep(0.005)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[LocalPair]:
    """A pair that is not started yet; it is closed after the test."""
    pair = LocalPair(tmp_path)
    yield pair
    await pair.primary.close()
    await pair.backup.close()


async def test_one_of_the_two_serves(pair: LocalPair) -> None:
    assert not pair.primary.vote()
    await pair.start()
    assert (pair.primary.vote(), pair.backup.vote()) == (True, False)
    assert pair.primary.endpoint == pair.address("primary")
    assert repr(pair.primary) == "<Pair primary: active>"
    assert [view.state for view in pair.views["backup"]][-1] is State.PASSIVE
    assert pair.backup.view.peer_state is State.ACTIVE
    assert pair.backup.view.epoch == pair.primary.view.epoch == 1


async def test_a_vote_makes_the_passive_server_active_when_its_peer_is_gone(
    pair: LocalPair,
) -> None:
    await pair.start()
    begun = time.monotonic()
    await pair.primary.close()
    assert not pair.primary.serves
    await until(pair.backup.vote)
    assert time.monotonic() - begun > HEARTBEAT / 2  # not before a heartbeat of the peer was due
    assert pair.backup.view.epoch == 2
    pair.primary = pair.make("primary")
    await pair.primary.start()
    await until(lambda: pair.primary.view.state is State.PASSIVE)
    assert pair.backup.serves  # no automatic fail-back


async def test_without_a_vote_the_backup_stays_passive(pair: LocalPair) -> None:
    await pair.start()
    await pair.primary.close()
    await until(lambda: pair.backup.view.peer_is_silent)
    await until(lambda: pair.views["backup"][-1].peer_is_silent)
    assert not pair.backup.serves


async def test_switches_in_both_directions(pair: LocalPair) -> None:
    await pair.start()
    pair.primary.switch()
    assert not pair.primary.serves
    await until(lambda: pair.backup.serves)
    await until(lambda: pair.primary.view.state is State.PASSIVE)
    pair.primary.switch()  # asks the active peer to become passive
    await until(lambda: pair.primary.serves)
    assert pair.primary.view.epoch == 3


async def test_drain_hands_over_without_a_vote(pair: LocalPair) -> None:
    await pair.start()
    await pair.primary.drain()
    assert pair.backup.serves
    await pair.backup.drain()
    assert not pair.backup.serves


async def test_a_server_whose_loop_was_blocked_is_suspended_until_its_peer_answers(
    pair: LocalPair,
) -> None:
    await pair.start()
    time.sleep(3 * HEARTBEAT)  # noqa: ASYNC251 - this is what is tested
    assert not pair.primary.serves
    assert not pair.primary.vote()
    assert pair.primary.view.state is State.SUSPENDED
    await until(lambda: pair.primary.serves)
    assert pair.primary.view.epoch == 1


async def test_one_connection_is_enough(pair: LocalPair) -> None:
    pair.primary = pair.make("primary", bind="tcp://127.0.0.1:0", peer=pair.address("nobody"))
    await pair.primary.start()
    assert not pair.primary.endpoint.endswith(":0")
    pair.backup = pair.make("backup", peer=pair.primary.endpoint)
    await pair.backup.start()
    await until(lambda: pair.primary.serves and pair.backup.view.state is State.PASSIVE)
    pair.backup.switch()
    await until(lambda: pair.backup.serves)
    await pair.primary.close()
    assert pair.backup.vote()


async def test_a_closed_server_is_not_active(pair: LocalPair) -> None:
    await pair.start()
    await pair.primary.close()
    await until(lambda: pair.backup.view.peer_is_silent)
    assert not pair.primary.serves
    assert not pair.primary.vote()


async def test_two_primaries_fail_with_advice(pair: LocalPair) -> None:
    pair.backup = pair.make("primary", bind=pair.address("backup"), peer=pair.address("primary"))
    await pair.primary.start()
    await pair.backup.start()
    async with asyncio.timeout(WAIT_S):
        error = await pair.backup.until_failed()
    assert "start one as primary and the other as backup" in str(error)
    for act in (pair.backup.vote, pair.backup.switch):
        with pytest.raises(PairFailed, match="as backup"):
            act()


@pure_only("the test replaces a method of an engine")
@pytest.mark.parametrize("victim", ["primary", "backup"])
async def test_a_forged_heartbeat_ends_neither_server(
    pair: LocalPair, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack 5 of the security design: both servers exited after a forged heartbeat."""
    await pair.start()
    role = "backup" if victim == "primary" else "primary"
    forger = pair.make(role, bind=f"ipc://{pair.folder}/forger", peer=pair.address(victim))
    engine = forger._engine
    state = State.ACTIVE if victim == "primary" else State.PASSIVE
    epoch = pair.primary.view.epoch
    own_heartbeat = engine._own_heartbeat

    def forged() -> Word:
        return own_heartbeat()._replace(state=state, epoch=epoch, wants_answer=True)

    engine._own_heartbeat = forged  # type: ignore[method-assign]
    try:
        await forger.start()
        await until(lambda: "check which hosts can reach this address" in caplog.text)
        assert pair.primary.serves
        assert pair.primary.view.state is State.ACTIVE
        assert pair.backup.view.state is State.PASSIVE
    finally:
        await forger.close()


async def test_invalid_operations_are_refused(pair: LocalPair) -> None:
    await pair.primary.start()
    with pytest.raises(LocalViolation, match="the pair is starting"):
        pair.primary.switch()
    await pair.primary.close()
    with pytest.raises(LocalViolation, match="only once"):
        await pair.primary.start()
    taken = pair.make("backup")
    await pair.backup.start()
    with pytest.raises(TransportError):
        await taken.start()
    await taken.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"bind": "tcp://127.0.0.1:1", "peer": "tcp://127.0.0.1:1"}, "its own peer"),
        ({"bind": "sp+tcp://127.0.0.1:1"}, "cannot be used here"),
        ({"peer": "tcp://*:1"}, "are only for listening"),
        ({"peer": "tcp://127.0.0.1:0"}, "are only for listening"),
        ({"heartbeat": 0.001}, "between 10 ms and 30 s"),
    ],
)
def test_invalid_settings_are_refused(pair: LocalPair, settings: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        pair.make("primary", **settings)


def test_an_invalid_role_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'primary' or 'backup', not 'king'"):
        Pair("king", bind="ipc:///a", peer="ipc:///b")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not None"):
        Pair(None, bind="ipc:///a", peer="ipc:///b")  # type: ignore[arg-type]
    assert Pair(PairRole.BACKUP, bind="ipc:///a", peer="ipc:///b").role is PairRole.BACKUP


# --- operators ------------------------------------------------------------------------------------
async def test_an_operator_can_view_and_switch_at_either_server(pair: LocalPair) -> None:
    await pair.start()
    async with Operator(pair.address("primary")) as at_primary:
        assert (await at_primary.view()).serves
        async with Operator(pair.address("backup")) as at_backup:
            assert (await at_backup.switch()).serves
            assert (await at_primary.view()).state is State.PASSIVE
            view = await at_primary.switch()
            assert (view.serves, view.epoch) == (True, 3)


async def test_an_operator_cannot_make_the_only_server_passive(pair: LocalPair) -> None:
    await pair.start()
    await pair.backup.close()
    await until(lambda: pair.primary.view.peer_is_silent)
    async with Operator(pair.address("primary")) as operator:
        with pytest.raises(RemoteFailure, match="neither would serve"):
            await operator.switch()


async def test_an_operator_can_make_a_backup_without_a_peer_active(pair: LocalPair) -> None:
    await pair.backup.start()
    async with Operator(pair.address("backup")) as operator:
        await until(lambda: pair.backup.view.peer_is_silent)
        assert (await operator.switch()).serves


async def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async with Operator(f"ipc://{tmp_path}/nobody", timeout=0.2) as operator:
        with pytest.raises(CallTimeout, match="nobody") as caught:
            await operator.view()
    assert not caught.value.may_have_executed


# --- processes ------------------------------------------------------------------------------------
class Server:
    """A process of examples/paired_server.py, which can be restarted at the same addresses."""

    def __init__(self, role: str, folder: Path, cleanup: ExitStack) -> None:
        other = "backup" if role == "primary" else "primary"
        self.role = role
        self.pair_address = f"ipc://{folder}/{role}"
        self._places = (self.pair_address, f"ipc://{folder}/{other}")
        self._cleanup = cleanup
        self._clients = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        program = ROOT / "examples" / "paired_server.py"
        words = [self.role, self._clients, *self._places, "--heartbeat", str(HEARTBEAT)]
        self.process = subprocess.Popen(
            [sys.executable, str(program), *words],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._cleanup.callback(self._kill, self.process)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        line = next(line for line in lines if line.startswith("listening on "))
        self._clients = line.removeprefix("listening on ").strip()

    @property
    def place(self) -> tuple[str, int]:
        """The host and the port for clients."""
        host, _, port = self._clients.rpartition(":")
        return host, int(port)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    @staticmethod
    def _kill(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


class Caller:
    """A client that tries the servers in turn until one answers, and checks each answer.

    Epochs never decrease, and each epoch belongs to one server.
    """

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self._count = 0
        self._reigns: dict[int, str] = {}
        self.epoch = 0

    def ask(self) -> str:
        """Return the role of the server that answers."""
        return eventually(lambda: next(filter(None, map(self._try, self._servers)), ""), "served")

    def _try(self, server: Server) -> str:
        self._count += 1
        try:
            with socket.create_connection(server.place, timeout=2 * HEARTBEAT) as connection:
                connection.sendall(b"%d\n" % self._count)
                answer = connection.makefile("rb").readline()
        except OSError:
            return ""  # killed or stopped
        if not answer:
            return ""  # it closed the connection: it is not active
        role, epoch, echoed = answer.decode().split()
        assert int(echoed) == self._count
        assert self._reigns.setdefault(int(epoch), role) == role
        assert int(epoch) >= self.epoch
        self.epoch = int(epoch)
        return role


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """A primary and a backup process."""
    with ExitStack() as cleanup:
        yield [Server(role, tmp_path, cleanup) for role in ("primary", "backup")]


@pytest.mark.slow
@pytest.mark.timeout(120 * ROUNDS)
def test_a_user_written_server_is_killed_stopped_and_switched(servers: list[Server]) -> None:
    caller = Caller(servers)
    by_role = {server.role: server for server in servers}
    for _ in range(ROUNDS):
        active = by_role[caller.ask()]
        passive = next(server for server in servers if server is not active)
        _await_passive(passive)

        active.send(signal.SIGKILL)
        active.process.wait()
        assert caller.ask() == passive.role
        active.start()
        _await_passive(active)
        assert caller.ask() == passive.role  # no automatic fail-back

        _stop_and_wake(passive, caller, active)

        _await_passive(passive)
        ended = requite("pair", "switch", active.pair_address)
        assert ended.code == 0, ended.err
        assert caller.ask() == passive.role

        passive.send(signal.SIGTERM)  # hands over
        assert passive.process.wait(WAIT_S) == 0
        assert caller.ask() == active.role
        passive.start()


def _stop_and_wake(active: Server, caller: Caller, other: Server) -> None:
    """Stop a server and send it a request; check that it does not answer after it resumes."""
    with socket.create_connection(active.place, timeout=WAIT_S) as connection:
        connection.sendall(b"before\n")
        answers = connection.makefile("rb")
        assert answers.readline()
        active.send(signal.SIGSTOP)
        connection.sendall(b"unread\n")
        assert caller.ask() == other.role
        active.send(signal.SIGCONT)
        assert answers.readline() == b""  # it closes the connection
    assert caller.ask() == other.role


def _await_passive(server: Server) -> None:
    eventually(lambda: _view_of(server).state is State.PASSIVE, f"the {server.role} is passive")


def _view_of(server: Server) -> PairView:
    async def look() -> PairView:
        async with Operator(server.pair_address, timeout=WAIT_S) as operator:
            return await operator.view()

    return asyncio.run(look())


@pytest.mark.timeout(120)
def test_the_command_shows_and_switches(servers: list[Server]) -> None:
    primary, backup = servers
    _await_passive(backup)
    status = requite("pair", "status", primary.pair_address)
    assert status.code == 0
    first, second = status.out.splitlines()
    assert first == "primary  active, serves, epoch 1"
    assert re.fullmatch(r"backup   was passive \d\.\d s ago", second)
    record = requite("pair", "status", backup.pair_address, "--json").record
    assert record["peer_state"] == "active"
    assert not record["serves"]

    switched = requite("pair", "switch", backup.pair_address, "--json")
    assert switched.code == 0
    assert (switched.record["role"], switched.record["state"]) == ("backup", "active")

    primary.send(signal.SIGKILL)
    primary.process.wait()
    eventually(lambda: _view_of(backup).peer_is_silent, "the primary is silent")

    def is_shown() -> bool:  # a backup that was paused first reads heartbeats that arrived before
        return "SILENT: was passive" in requite("pair", "status", backup.pair_address).out

    eventually(is_shown, "the command shows it")

    def is_refused() -> bool:  # after a pause it is passive until a switch makes it active again
        ended = requite("pair", "switch", backup.pair_address)
        return ended.code == 1 and "neither would serve" in ended.err

    eventually(is_refused, "the command refuses the switch", 2 * WAIT_S)


def test_the_command_reports_a_server_that_does_not_answer(tmp_path: Path) -> None:
    ended = requite("pair", "status", f"ipc://{tmp_path}/nobody", "--timeout", "0.2")
    assert ended.code == 5
    assert "nobody" in ended.err


@pytest.mark.parametrize("words", [("status", "mdp://127.0.0.1:5555"), ("switch", "nonsense")])
def test_the_command_refuses_invalid_addresses(words: tuple[str, str]) -> None:
    ended = requite("pair", *words)
    assert ended.code == 2
    assert "cannot read the address" in ended.err
