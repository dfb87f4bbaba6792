"""A disk that fails under a broker which keeps requests, and works again."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.serving import Serving, eventually
from tests.support.patience import failure

import requite
from requite.protocols.titanic.policy import TitanicPolicy
from requite.storage import disk
from requite.titanic import TitanicSettings

pytestmark = pytest.mark.e2e

QUICK = TitanicPolicy(backoff_s=0.02, backoff_s_max=0.1, check_every_s=0.02, store_retry_s=0.1)


class Disk:
    """Syncs as the real one does, unless it is `broken`."""

    def __init__(self) -> None:
        self.broken = False
        self._sync = disk._sync_data

    def sync(self, descriptor: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Disk:
    device = Disk()
    monkeypatch.setattr(disk, "_sync_data", device.sync)
    monkeypatch.setattr("requite.titanic.outage._PAUSE_S", 0.05)
    return device


@pytest.fixture
def serving(tmp_path: Path, device: Disk) -> Iterator[Serving]:
    serving = Serving(titanic=TitanicSettings(tmp_path / "kept", QUICK))
    yield serving
    device.broken = False
    serving.handlers.gate.set()
    serving.close()


def is_accepted(client: requite.Client) -> bool:
    try:
        client.submit(b"x", timeout=0.3)
    except requite.CallError:
        return False
    return True


def break_down(client: requite.Client, device: Disk) -> None:
    """Let the disk fail, and somebody notice."""
    device.broken = True
    failure(
        requite.StoreUnavailable,
        "cannot sync",
        lambda timeout: client.submit(b"refused", timeout=timeout),
    )


def is_kept(client: requite.Client, ticket: str) -> None:
    """See that a request has no reply yet, and is known."""
    failure(requite.CallTimeout, "stored", lambda timeout: client.result(ticket, timeout=timeout))


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_it_goes_on_by_itself_and_nothing_is_lost_or_run_twice(
    serving: Serving, device: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "requite")
    serving.start_worker()
    with (
        requite.Client(serving.url("echo"), timeout=20) as client,
        requite.Client(serving.url("hold"), timeout=20) as holding,
        requite.Client(serving.url("later"), timeout=20) as later,
    ):
        answered = client.submit(b"answered")
        assert client.result(answered).body == b"answered"
        held = holding.submit(b"held")
        eventually(lambda: len(serving.handlers.seen) == 2, "the worker has it")
        waiting = later.submit(b"waiting")

        break_down(client, device)
        for _ in range(3):
            assert client.result(answered).body == b"answered"
            assert not is_accepted(client)
        told = json.loads(client.call(b"", service="titanic.stats").frames[1])
        assert "cannot sync" in told["failure"]
        assert "not stored" in told["trouble"]
        serving.handlers.gate.set()
        is_kept(holding, held)

        device.broken = False
        eventually(lambda: is_accepted(client), "it accepts requests again")
        assert holding.result(held).body == b"held"
        assert sum(request.body == b"held" for request in serving.handlers.seen) == 1
        client.forget(answered)
        told = json.loads(client.call(b"", service="titanic.stats").frames[1])
        assert told["failure"] == ""

        serving.stop_broker()  # what was acknowledged since is on the disk as well
        serving.start_broker()
        assert holding.result(held).body == b"held"
        is_kept(later, waiting)
        with pytest.raises(requite.UnknownTicket):
            client.result(answered)
    assert lines(caplog, "has failed") == 1
    assert lines(caplog, "works again: requests are accepted") == 1
    assert lines(caplog, "not stored") <= 3  # requests, replies


def test_in_an_empty_folder_it_does_not_begin_anew(
    serving: Serving, device: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is not mounted: whoever asked for a ticket would hear that there is no such one."""
    with requite.Client(serving.url("later"), timeout=20) as client:
        ticket = client.submit(b"x")
        break_down(client, device)
        (tmp_path / "kept").rename(tmp_path / "away")
        (tmp_path / "kept").mkdir()
        device.broken = False
        eventually(lambda: lines(caplog, "contains another log, or none"), "it says so")
        assert not is_accepted(client)
        is_kept(client, ticket)
        assert list((tmp_path / "kept").iterdir()) == []
        (tmp_path / "kept").rmdir()
        (tmp_path / "away").rename(tmp_path / "kept")
        eventually(lambda: is_accepted(client), "it accepts requests again")
        is_kept(client, ticket)


def test_it_ends_in_good_order_while_the_disk_is_broken(serving: Serving, device: Disk) -> None:
    with requite.Client(serving.url("later"), timeout=20) as client:
        client.submit(b"x")
        break_down(client, device)
        serving.begin_draining().result(20)
