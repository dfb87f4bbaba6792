"""A disk that fails under a broker with durable requests, and works again later."""

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
    """A disk whose sync fails while `broken` is set."""

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
    """Make the disk fail; wait until a submitted request is refused for this reason."""
    device.broken = True
    failure(
        requite.StoreUnavailable,
        "cannot sync",
        lambda timeout: client.submit(b"refused", timeout=timeout),
    )


def assert_stored(client: requite.Client, ticket: str) -> None:
    """Check that a request is stored and has no reply yet."""
    failure(requite.CallTimeout, "stored", lambda timeout: client.result(ticket, timeout=timeout))


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_after_an_outage_it_recovers_and_no_request_is_lost_or_run_twice(
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
        statistics = json.loads(client.call(b"", service="titanic.stats").frames[1])
        assert "cannot sync" in statistics["failure"]
        assert "not stored" in statistics["trouble"]
        assert serving.trouble == ""  # of the broker: it serves all other requests
        serving.handlers.gate.set()
        assert_stored(holding, held)

        device.broken = False
        eventually(lambda: is_accepted(client), "it accepts requests again")
        assert holding.result(held).body == b"held"
        assert sum(request.body == b"held" for request in serving.handlers.seen) == 1
        client.forget(answered)
        statistics = json.loads(client.call(b"", service="titanic.stats").frames[1])
        assert statistics["failure"] == ""

        serving.stop_broker()  # requests acknowledged since then are on the disk
        serving.start_broker()
        assert holding.result(held).body == b"held"
        assert_stored(later, waiting)
        with pytest.raises(requite.UnknownTicket):
            client.result(answered)
    assert lines(caplog, "has failed") == 1
    assert lines(caplog, "works again: requests are accepted") == 1
    assert lines(caplog, "not stored") <= 3  # requests, replies


def test_in_an_empty_folder_it_does_not_start_a_new_store(
    serving: Serving, device: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is not mounted: with an empty store, tickets would be reported as unknown."""
    with requite.Client(serving.url("later"), timeout=20) as client:
        ticket = client.submit(b"x")
        break_down(client, device)
        (tmp_path / "kept").rename(tmp_path / "away")
        (tmp_path / "kept").mkdir()
        device.broken = False
        eventually(lambda: lines(caplog, "contains another log, or none"), "it says so")
        assert not is_accepted(client)
        assert_stored(client, ticket)
        assert list((tmp_path / "kept").iterdir()) == []
        (tmp_path / "kept").rmdir()
        (tmp_path / "away").rename(tmp_path / "kept")
        eventually(lambda: is_accepted(client), "it accepts requests again")
        assert_stored(client, ticket)


def test_a_drain_ends_while_the_disk_fails(serving: Serving, device: Disk) -> None:
    with requite.Client(serving.url("later"), timeout=20) as client:
        client.submit(b"x")
        break_down(client, device)
        serving.begin_draining().result(20)
