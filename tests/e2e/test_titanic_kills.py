"""Any process may be killed at any time: no acknowledged request is lost.

Broker, Titanic, worker and client are processes. They are killed in turn while requests are
submitted and answered. At the end, every ticket that a client got has the right reply.
"""

from __future__ import annotations

import random
from itertools import cycle, islice
from pathlib import Path

import pytest
from tests.support.hand_submitter import HandSubmitter
from tests.support.live import Process
from tests.support.submitter import acknowledged
from tests.support.voyage import PROGRESS, Voyage
from tests.support.zmq_peers import RFCS, HandClient, Sockets

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("inside", [True, False], ids=["inside the broker", "beside it"])
def test_no_acknowledged_request_is_lost_after_kills_of_any_process(
    tmp_path: Path, processes: list[Process], inside: bool, kills: int
) -> None:
    voyage = Voyage(tmp_path, processes, inside=inside)
    voyage.await_progress()
    for role in islice(cycle(voyage.roles), kills):
        voyage.kill(role)
        voyage.start(role)
        voyage.await_progress(random.randrange(1, PROGRESS))
    voyage.kill("client")
    assert voyage.check(voyage.url) >= kills


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "inside", "kills"),
    [
        ("0.1", True, 3),
        ("0.2", False, 4),
        *(
            pytest.param(version, inside, 60, marks=pytest.mark.long)
            for version in RFCS
            for inside in (True, False)
        ),
    ],
)
def test_no_acknowledged_request_of_a_pyzmq_client_is_lost_after_kills(
    tmp_path: Path,
    processes: list[Process],
    sockets: Sockets,
    inside: bool,
    version: str,
    kills: int,
) -> None:
    """These clients implement 9/TSP and their version of MDP from the specifications, without keys.

    A request that was not acknowledged may be stored twice; each is stored at least once.
    """

    def client(url: str, tickets: Path) -> Process:
        return HandSubmitter(url, tickets, version)

    voyage = Voyage(tmp_path, processes, inside=inside, client=client)
    voyage.await_progress()
    for role in islice(cycle(voyage.roles), kills):
        voyage.kill(role)
        voyage.start(role)
        voyage.await_progress(random.randrange(1, PROGRESS))
    voyage.kill("client")
    assert voyage.check(voyage.url) >= kills
    asking = HandClient(sockets, voyage.cast["broker"].endpoint, RFCS[version])
    for ticket, body in list(acknowledged(voyage.tickets).items())[:20]:
        for asked in (ticket, ticket.lower()):
            assert asking.call(b"titanic.reply", asked.encode()) == [b"200", body]
        assert asking.call(b"titanic.close", ticket.encode()) == [b"200"]
        assert asking.call(b"titanic.reply", ticket.encode())[0][:3] == b"400"


def test_waiting_requests_survive_kills_of_all_processes(
    tmp_path: Path, processes: list[Process]
) -> None:
    voyage = Voyage(tmp_path, processes, inside=True)
    voyage.kill("worker")
    voyage.await_progress(60)
    for role in ("client", "broker"):
        voyage.kill(role)
    voyage.start("broker")
    voyage.start("worker")
    assert voyage.check(voyage.url) >= 60


def test_a_second_titanic_on_the_folder_is_refused(
    tmp_path: Path, processes: list[Process]
) -> None:
    voyage = Voyage(tmp_path, processes, inside=True)
    voyage.await_progress(1)
    kept = str(tmp_path / "kept")
    second = Process("-m", "requite.cli", "titanic", "--broker", voyage.url, "--dir", kept)
    processes.append(second)
    code, errors = second.ended()
    assert code == 2
    assert "is in use by process" in errors
    voyage.await_progress(1)
