"""`Pair` on a real event loop, `requite pair`, and a server of one's own, killed and stopped."""

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

# Long enough that none is taken for dead, by others or itself, for want of the processor.
HEARTBEAT: Final = 0.5
ROUNDS: Final = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))


# --- in this process ------------------------------------------------------------------------------
class Two:
    """A primary and a backup, and what each of them was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.views: dict[str, list[PairView]] = {"primary": [], "backup": []}
        self.primary, self.backup = self.make("primary"), self.make("backup")

    def address(self, role: str) -> str:
        """Return where a server listens for the other one."""
        return f"ipc://{self.folder}/{role}"

    def make(self, role: str, **settings: Any) -> Pair:
        """Make one of the two."""
        other = "backup" if role == "primary" else "primary"
        defaults: dict[str, Any] = {
            "bind": self.address(role),
            "peer": self.address(other),
            "heartbeat": HEARTBEAT,
            "on_change": self.views[role].append,
        }
        return Pair(role, **defaults | settings)  # type: ignore[arg-type]

    async def start(self) -> None:
        """Start both, and wait until they agree."""
        await self.primary.start()
        await self.backup.start()
        await until(lambda: self.primary.serves and self.backup.view.state is State.PASSIVE)


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - a pair tells of changes, but not of time
            await asyncio.sleep(0.005)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    """A pair that has not been started; it is closed in any case."""
    two = Two(tmp_path)
    yield two
    await two.primary.close()
    await two.backup.close()


async def test_one_of_the_two_serves(two: Two) -> None:
    assert not two.primary.vote()
    await two.start()
    assert (two.primary.vote(), two.backup.vote()) == (True, False)
    assert two.primary.endpoint == two.address("primary")
    assert repr(two.primary) == "<Pair primary: active>"
    assert [view.state for view in two.views["backup"]][-1] is State.PASSIVE
    assert two.backup.view.peer_state is State.ACTIVE
    assert two.backup.view.epoch == two.primary.view.epoch == 1


async def test_a_vote_makes_the_passive_one_serve_when_the_other_is_gone(two: Two) -> None:
    await two.start()
    begun = time.monotonic()
    await two.primary.close()
    assert not two.primary.serves
    await until(two.backup.vote)
    assert time.monotonic() - begun > HEARTBEAT / 2  # not before the other one could have spoken
    assert two.backup.view.epoch == 2
    two.primary = two.make("primary")
    await two.primary.start()
    await until(lambda: two.primary.view.state is State.PASSIVE)
    assert two.backup.serves  # no automatic fail-back


async def test_without_a_vote_nobody_takes_over(two: Two) -> None:
    await two.start()
    await two.primary.close()
    await until(lambda: two.backup.view.peer_is_silent)
    await until(lambda: two.views["backup"][-1].peer_is_silent)
    assert not two.backup.serves


async def test_a_switch_takes_a_round_trip_and_back(two: Two) -> None:
    await two.start()
    two.primary.switch()
    assert not two.primary.serves
    await until(lambda: two.backup.serves)
    await until(lambda: two.primary.view.state is State.PASSIVE)
    two.primary.switch()  # asks the other one to give up
    await until(lambda: two.primary.serves)
    assert two.primary.view.epoch == 3


async def test_drain_hands_over_without_a_vote(two: Two) -> None:
    await two.start()
    await two.primary.drain()
    assert two.backup.serves
    await two.backup.drain()
    assert not two.backup.serves


async def test_a_loop_that_stood_still_serves_nobody_until_it_has_asked(two: Two) -> None:
    await two.start()
    time.sleep(3 * HEARTBEAT)  # noqa: ASYNC251 - this is what is tested
    assert not two.primary.serves
    assert not two.primary.vote()
    assert two.primary.view.state is State.SUSPENDED
    await until(lambda: two.primary.serves)
    assert two.primary.view.epoch == 1


async def test_one_connection_will_do_whoever_dials_it(two: Two) -> None:
    two.primary = two.make("primary", bind="tcp://127.0.0.1:0", peer=two.address("nobody"))
    await two.primary.start()
    assert not two.primary.endpoint.endswith(":0")
    two.backup = two.make("backup", peer=two.primary.endpoint)
    await two.backup.start()
    await until(lambda: two.primary.serves and two.backup.view.state is State.PASSIVE)
    two.backup.switch()
    await until(lambda: two.backup.serves)
    await two.primary.close()
    assert two.backup.vote()


async def test_who_has_been_closed_serves_nobody(two: Two) -> None:
    await two.start()
    await two.primary.close()
    await until(lambda: two.backup.view.peer_is_silent)
    assert not two.primary.serves
    assert not two.primary.vote()


async def test_two_primaries_fail_and_say_so(two: Two) -> None:
    two.backup = two.make("primary", bind=two.address("backup"), peer=two.address("primary"))
    await two.primary.start()
    await two.backup.start()
    async with asyncio.timeout(WAIT_S):
        error = await two.backup.until_failed()
    assert "start one as primary and the other as backup" in str(error)
    for act in (two.backup.vote, two.backup.switch):
        with pytest.raises(PairFailed, match="as backup"):
            act()


@pytest.mark.parametrize("victim", ["primary", "backup"])
async def test_a_forged_heartbeat_ends_neither_server(
    two: Two, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack 5 of the security design: both servers exited when a stranger contradicted them."""
    await two.start()
    role = "backup" if victim == "primary" else "primary"
    stranger = two.make(role, bind=f"ipc://{two.folder}/stranger", peer=two.address(victim))
    engine = stranger._engine
    state = State.ACTIVE if victim == "primary" else State.PASSIVE
    epoch = two.primary.view.epoch
    honest = engine._own_heartbeat

    def forged() -> Word:
        return honest()._replace(state=state, epoch=epoch, wants_answer=True)

    engine._own_heartbeat = forged  # type: ignore[method-assign]
    try:
        await stranger.start()
        await until(lambda: "check which hosts can reach this address" in caplog.text)
        assert two.primary.serves
        assert two.primary.view.state is State.ACTIVE
        assert two.backup.view.state is State.PASSIVE
    finally:
        await stranger.close()


async def test_what_cannot_be_done_is_refused(two: Two) -> None:
    await two.primary.start()
    with pytest.raises(LocalViolation, match="the pair is starting"):
        two.primary.switch()
    await two.primary.close()
    with pytest.raises(LocalViolation, match="only once"):
        await two.primary.start()
    taken = two.make("backup")
    await two.backup.start()
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
def test_settings_that_cannot_work_are_refused(two: Two, settings: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        two.make("primary", **settings)


def test_a_role_is_one_of_two() -> None:
    with pytest.raises(ConfigurationError, match="'primary' or 'backup', not 'king'"):
        Pair("king", bind="ipc:///a", peer="ipc:///b")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not None"):
        Pair(None, bind="ipc:///a", peer="ipc:///b")  # type: ignore[arg-type]
    assert Pair(PairRole.BACKUP, bind="ipc:///a", peer="ipc:///b").role is PairRole.BACKUP


# --- operators ------------------------------------------------------------------------------------
async def test_an_operator_looks_and_switches_at_either_server(two: Two) -> None:
    await two.start()
    async with Operator(two.address("primary")) as at_primary:
        assert (await at_primary.view()).serves
        async with Operator(two.address("backup")) as at_backup:
            assert (await at_backup.switch()).serves
            assert (await at_primary.view()).state is State.PASSIVE
            view = await at_primary.switch()
            assert (view.serves, view.epoch) == (True, 3)


async def test_an_operator_is_refused_what_would_leave_nobody(two: Two) -> None:
    await two.start()
    await two.backup.close()
    await until(lambda: two.primary.view.peer_is_silent)
    async with Operator(two.address("primary")) as operator:
        with pytest.raises(RemoteFailure, match="neither would serve"):
            await operator.switch()


async def test_an_operator_makes_a_lonely_backup_serve(two: Two) -> None:
    await two.backup.start()
    async with Operator(two.address("backup")) as operator:
        await until(lambda: two.backup.view.peer_is_silent)
        assert (await operator.switch()).serves


async def test_who_does_not_answer_is_named(tmp_path: Path) -> None:
    async with Operator(f"ipc://{tmp_path}/nobody", timeout=0.2) as operator:
        with pytest.raises(CallTimeout, match="nobody") as caught:
            await operator.view()
    assert not caught.value.may_have_executed


# --- processes ------------------------------------------------------------------------------------
class Server:
    """One process of examples/paired_server.py, that can be started again at the same places."""

    def __init__(self, role: str, folder: Path, cleanup: ExitStack) -> None:
        other = "backup" if role == "primary" else "primary"
        self.role = role
        self.pair_address = f"ipc://{folder}/{role}"
        self._places = (self.pair_address, f"ipc://{folder}/{other}")
        self._cleanup = cleanup
        self._clients = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = ROOT / "examples" / "paired_server.py"
        words = [self.role, self._clients, *self._places, "--heartbeat", str(HEARTBEAT)]
        self.process = subprocess.Popen(
            [sys.executable, str(program), *words],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._cleanup.callback(self._bury, self.process)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        line = next(line for line in lines if line.startswith("listening on "))
        self._clients = line.removeprefix("listening on ").strip()

    @property
    def place(self) -> tuple[str, int]:
        """Where clients come."""
        host, _, port = self._clients.rpartition(":")
        return host, int(port)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    @staticmethod
    def _bury(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


class Caller:
    """A client that asks one server after the other until it is answered, and checks the answers:
    epochs never go back, and each belongs to one server."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self._count = 0
        self._reigns: dict[int, str] = {}
        self.epoch = 0

    def ask(self) -> str:
        """Return the role of who answers."""
        return eventually(lambda: next(filter(None, map(self._try, self._servers)), ""), "served")

    def _try(self, server: Server) -> str:
        self._count += 1
        try:
            with socket.create_connection(server.place, timeout=2 * HEARTBEAT) as connection:
                connection.sendall(b"%d\n" % self._count)
                answer = connection.makefile("rb").readline()
        except OSError:
            return ""  # dead, or stopped
        if not answer:
            return ""  # it hung up: it does not serve
        role, epoch, echoed = answer.decode().split()
        assert int(echoed) == self._count
        assert self._reigns.setdefault(int(epoch), role) == role
        assert int(epoch) >= self.epoch
        self.epoch = int(epoch)
        return role


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """A pair of processes."""
    with ExitStack() as cleanup:
        yield [Server(role, tmp_path, cleanup) for role in ("primary", "backup")]


@pytest.mark.slow
@pytest.mark.timeout(120 * ROUNDS)
def test_a_server_of_ones_own_is_killed_stopped_and_switched(servers: list[Server]) -> None:
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
    """Stop a server with a request before it; when it wakes, it answers that one no more."""
    with socket.create_connection(active.place, timeout=WAIT_S) as connection:
        connection.sendall(b"before\n")
        answers = connection.makefile("rb")
        assert answers.readline()
        active.send(signal.SIGSTOP)
        connection.sendall(b"unread\n")
        assert caller.ask() == other.role
        active.send(signal.SIGCONT)
        assert answers.readline() == b""  # it hangs up
    assert caller.ask() == other.role


def _await_passive(server: Server) -> None:
    eventually(lambda: _look(server).state is State.PASSIVE, f"the {server.role} is passive")


def _look(server: Server) -> PairView:
    async def look() -> PairView:
        async with Operator(server.pair_address, timeout=WAIT_S) as operator:
            return await operator.view()

    return asyncio.run(look())


@pytest.mark.timeout(120)
def test_the_command_shows_and_switches(servers: list[Server]) -> None:
    primary, backup = servers
    _await_passive(backup)
    told = requite("pair", "status", primary.pair_address)
    assert told.code == 0
    first, second = told.out.splitlines()
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
    eventually(lambda: _look(backup).peer_is_silent, "the primary is silent")

    def is_told() -> bool:  # a backup that had to wait for the processor hears the other out first
        return "SILENT: was passive" in requite("pair", "status", backup.pair_address).out

    eventually(is_told, "the command tells so")

    def is_refused() -> bool:  # who has just been waiting resigns, and serves again when told to
        ended = requite("pair", "switch", backup.pair_address)
        return ended.code == 1 and "neither would serve" in ended.err

    eventually(is_refused, "the command tells why not", 2 * WAIT_S)


def test_the_command_tells_when_nobody_answers(tmp_path: Path) -> None:
    ended = requite("pair", "status", f"ipc://{tmp_path}/nobody", "--timeout", "0.2")
    assert ended.code == 5
    assert "nobody" in ended.err


@pytest.mark.parametrize("words", [("status", "mdp://127.0.0.1:5555"), ("switch", "nonsense")])
def test_the_command_refuses_what_is_no_address(words: tuple[str, str]) -> None:
    ended = requite("pair", *words)
    assert ended.code == 2
    assert "cannot read the address" in ended.err
