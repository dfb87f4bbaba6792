"""Two Titanic processes as primary and replica: kills, pauses, full disks and promotions."""

from __future__ import annotations

import json
import signal
from itertools import cycle, islice
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.support.gate import Gate
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.patience import failure
from tests.support.submitter import SERVICE, Submitter, acknowledged
from tests.support.voyage import INTERVAL, PROGRESS

import requite

pytestmark = pytest.mark.e2e


def stats(url: str) -> dict[str, Any]:
    """Return the statistics of the Titanic at a broker (`titanic.stats`)."""
    with requite.Client(url, timeout=10) as client:
        statistics: dict[str, Any] = json.loads(client.call(b"", service="titanic.stats").frames[1])
    return statistics


def missing_records(url: str) -> int:
    """Return how many records the replica of the Titanic at a broker lacks."""
    return int(stats(url)["behind"])


class ReplicaPair:
    """A primary with a synchronous standby, each inside its own broker."""

    def __init__(self, folder: Path, processes: list[Process], *standby: str) -> None:
        self._folder = folder
        self._processes = processes
        self._standby_options = standby
        self.brokers: dict[str, BrokerProcess] = {}
        self.start("standby")
        self.start("primary")

    def start(self, role: str, *options: str) -> BrokerProcess:
        """Start the primary or the standby, at the address of its previous process."""
        before = self.brokers.get(role)
        if role == "standby":
            options = (*(options or self._standby_options), "--titanic-standby")
        else:
            url = self.brokers["standby"].url
            options = ("--titanic-replica", url, "--titanic-replica-mode", "sync", *options)
        where = {} if before is None else {"bind": before.endpoint}
        folder = str(self._folder / role)
        self.brokers[role] = process = BrokerProcess(
            *INTERVAL, "--titanic", folder, *options, **where
        )
        self._processes.append(process)
        return process

    def kill(self, role: str) -> None:
        self.brokers[role].forget_observer()
        self.brokers[role].kill()

    def promote(self) -> None:
        """Promote the standby."""
        with requite.Client(self.brokers["standby"].url, timeout=60) as client:
            assert client.call(b"", service="titanic.promote").frames[0] == b"200"

    def check(self, expected: dict[str, bytes]) -> None:
        """Check that the promoted standby has the reply to each acknowledged request."""
        url = self.brokers["standby"].url
        self._processes.append(Gate(self._folder).worker(url, *INTERVAL, services=SERVICE))
        with requite.Client(url, timeout=60) as client:
            for ticket, body in expected.items():
                assert client.result(ticket).body == body


@pytest.mark.timeout(900)
@pytest.mark.parametrize("troubles", [4, pytest.param(60, marks=pytest.mark.long)])
def test_in_sync_mode_no_acknowledged_request_is_lost(
    tmp_path: Path, processes: list[Process], troubles: int
) -> None:
    """The standby is killed or paused, and the primary is killed, while requests run.

    At the end, the primary is lost permanently.
    """
    pair = ReplicaPair(tmp_path, processes)
    tickets = tmp_path / "tickets"
    url = pair.brokers["primary"].url
    processes.append(Gate(tmp_path).worker(url, *INTERVAL, services=SERVICE))
    submitter = Submitter(url, tickets)
    processes.append(submitter)

    def await_progress() -> None:
        before = len(acknowledged(tickets))
        eventually(lambda: len(acknowledged(tickets)) >= before + PROGRESS, "it goes on", 60)

    await_progress()
    for trouble in islice(cycle(("hangs", "standby", "primary")), troubles):
        if trouble == "hangs":
            pair.brokers["standby"].signal(signal.SIGSTOP)
            sleep(1.0)  # the length of the pause
            pair.brokers["standby"].signal(signal.SIGCONT)
        else:
            pair.kill(trouble)
            pair.start(trouble)
        await_progress()
    pair.kill("primary")
    submitter.kill()
    expected = acknowledged(tickets)
    assert len(expected) > troubles * PROGRESS
    pair.promote()
    pair.check(expected)


@pytest.mark.timeout(120)
def test_a_primary_refuses_requests_once_its_standby_is_promoted(
    tmp_path: Path, processes: list[Process]
) -> None:
    """The primary refuses requests, also after a restart.

    No request that it acknowledged is lost or run by both.
    """
    pair = ReplicaPair(tmp_path, processes)
    url = pair.brokers["primary"].url
    with requite.Client(f"{url}/{SERVICE}", timeout=30) as client:
        tickets = {client.submit(b"%d" % number): b"%d" % number for number in range(5)}
        pair.promote()
        eventually(lambda: stats(url)["superseded"], "it knows")

        def is_refused() -> None:
            failure(
                requite.StoreUnavailable,
                "was superseded: its replica was",
                lambda timeout: client.submit(b"x", timeout=timeout),
            )

        is_refused()
        pair.kill("primary")
        pair.start("primary")
        is_refused()
    gate = Gate(tmp_path)
    processes.append(gate.worker(url, *INTERVAL, services=SERVICE))  # it gets no request
    pair.check(tickets)
    assert stats(url)["waiting"] == len(tickets)
    pair.kill("primary")
    _, errors = pair.brokers["primary"].ended()
    assert errors.count("superseded") <= 1  # after the restart, it read this from its log


@pytest.mark.timeout(120)
def test_a_full_standby_blocks_the_primary_and_catches_up_with_more_space(
    tmp_path: Path, processes: list[Process]
) -> None:
    pair = ReplicaPair(tmp_path, processes, "--titanic-disk-max", "5m")
    url = pair.brokers["primary"].url
    accepted: dict[str, bytes] = {}
    with requite.Client(f"{url}/{SERVICE}", timeout=30) as client:

        def submit(number: int) -> None:
            body = b"%d " % number + bytes(200_000)
            accepted[client.submit(body, timeout=8.0)] = body

        def submit_many() -> None:
            for number in range(60):
                submit(number)

        with pytest.raises(requite.StoreUnavailable, match=r"replica.*disk_bytes_max"):
            submit_many()
        assert len(accepted) > 5
        assert "disk_bytes_max" in stats(url)["trouble"]
        pair.kill("standby")
        pair.start("standby", "--titanic-disk-max", "200m")
        submit(99)
    eventually(lambda: missing_records(url) == 0, "the standby has everything")
    pair.kill("primary")
    pair.promote()
    pair.check(accepted)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_replica_has_all_acknowledged_requests_and_takes_over(
    tmp_path: Path, processes: list[Process], mode: str
) -> None:
    """In sync mode at any time; in async mode once it has received all records."""
    standby = BrokerProcess(*INTERVAL, "--titanic", str(tmp_path / "copy"), "--titanic-standby")
    processes.append(standby)
    options = ("--titanic-replica", standby.url, "--titanic-replica-mode", mode)
    primary = BrokerProcess(*INTERVAL, "--titanic", str(tmp_path / "kept"), *options)
    submitter = Submitter(primary.url, tmp_path / "tickets")
    processes += [primary, submitter]

    def accepted() -> int:
        return len(acknowledged(tmp_path / "tickets"))

    eventually(lambda: accepted() >= 50, "requests are accepted", 30)
    if mode == "async":
        submitter.kill()
        eventually(lambda: missing_records(primary.url) == 0, "the replica has everything")
    primary.kill()
    submitter.kill()
    expected = acknowledged(tmp_path / "tickets")
    processes.append(Gate(tmp_path).worker(standby.url, *INTERVAL, services=SERVICE))
    with requite.Client(standby.url, timeout=60) as client:
        assert client.call(b"", service="titanic.promote").frames[0][:3] == b"200"
        assert all(client.result(ticket).body == body for ticket, body in expected.items())


def test_a_restarted_replica_gets_the_records_it_missed(
    tmp_path: Path, processes: list[Process]
) -> None:
    copy = ("--titanic", str(tmp_path / "copy"), "--titanic-standby")
    standby = BrokerProcess(*INTERVAL, *copy)
    processes.append(standby)
    kept = ("--titanic", str(tmp_path / "kept"), "--titanic-replica", standby.url)
    primary = BrokerProcess(*INTERVAL, *kept)
    processes.append(primary)
    with requite.Client(f"{primary.url}/{SERVICE}", timeout=30) as client:
        tickets = {client.submit(b"before"): b"before"}
        eventually(lambda: missing_records(primary.url) == 0, "the replica has it")
        standby.kill()
        tickets |= {client.submit(b"%d" % number): b"%d" % number for number in range(20)}
        forgotten = client.submit(b"forgotten")
        client.forget(forgotten)
    assert missing_records(primary.url) > 20
    standby = BrokerProcess(*INTERVAL, *copy, bind=standby.endpoint)
    processes.append(standby)
    eventually(lambda: missing_records(primary.url) == 0, "the replica has everything again")
    primary.kill()
    processes.append(Gate(tmp_path).worker(standby.url, *INTERVAL, services=SERVICE))
    with requite.Client(standby.url, timeout=60) as client:
        with pytest.raises(requite.CallTimeout):  # a standby runs no requests
            client.result(next(iter(tickets)), timeout=0.5)
        assert client.call(b"", service="titanic.promote").frames[0][:3] == b"200"
        assert all(client.result(ticket).body == body for ticket, body in tickets.items())
        with pytest.raises(requite.UnknownTicket):
            client.result(forgotten)
