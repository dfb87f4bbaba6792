"""Journals in a store of objects: an S3 that runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer
from tests.journal.rows import FLIGHT

from requite.chronicle import Role
from requite.errors import LogGone, StorageError
from requite.journal import Journal, JournalSettings
from requite.journal.reader import events
from requite.journal.shipping import Shipper
from requite.storage.stores import FolderStore, Store, open_store

NAME = bytes(range(8))
LOG = "broker-0001020304050607"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of an S3 with one bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with urlopen(Request(f"{endpoint}/journals", method="PUT")):
        yield endpoint
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the bucket; endpoint and credentials are in the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    return "s3://journals"


def fetch(store: Store, target: Path) -> Path:
    """Bring a log back from a store, byte by byte as it is there."""
    copy = FolderStore(target)
    for name, size in store.sizes(LOG).items():
        copy.put(name, store.get(name, size))
    return target


def test_a_journal_goes_to_a_bucket_and_comes_back(bucket: str, tmp_path: Path) -> None:
    store = open_store(f"{bucket}/of/one/machine")
    with Journal(tmp_path / "journal", Role.BROKER, NAME) as journal:
        shipper = Shipper(tmp_path / "journal", store)
        shipper.ship()
        journal.chronicle.flights.append(FLIGHT)
    shipper.ship()
    assert Shipper(tmp_path / "journal", store).ship().segments == 0
    assert store.sizes(".logs") == {f".logs/{LOG}": 0}
    found = [*events(fetch(store, tmp_path / "back"))]
    assert found == [*events(tmp_path / "journal")]
    assert "answered" in {event.kind for event in found}


def test_a_store_that_fails_disturbs_nobody_and_gets_everything_later(
    bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = JournalSettings(ship_to=f"{bucket}-that-are-not-there", ship_every_s=0.01)
    with Journal(tmp_path / "journal", Role.BROKER, NAME, settings=settings) as journal:
        journal.chronicle.flights.append(FLIGHT)
    assert caplog.text.count("the journal cannot be shipped: cannot write s3://journals-that") == 1
    assert "secret" not in caplog.text
    assert "`requite journal ship` does that" in caplog.text
    store = open_store(f"{bucket}/later")
    Shipper(tmp_path / "journal", store).ship()
    assert [*events(fetch(store, tmp_path / "back"))] == [*events(tmp_path / "journal")]


def test_what_a_bucket_has_not_is_told(bucket: str) -> None:
    store = open_store(bucket)
    assert store.sizes("nothing") == {}
    with pytest.raises(LogGone):
        store.get("nothing/at-all", 10)
    with pytest.raises(StorageError, match="cannot write s3://nobodys"):
        open_store("s3://nobodys").put("name", b"data")
