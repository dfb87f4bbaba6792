"""An encrypted store of durable requests: what is on the disk, wrong keys, and rotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.test_cipher import ONE, TWO, write_keys
from tests.titanic.life import SMALL, LocalTitanic

from requite.errors import ConfigurationError, LogMismatch
from requite.protocols.titanic.wire import CLOSE, ERASE, REPLY
from requite.storage import MemoryFolder
from requite.titanic import TitanicSettings
from requite.titanic.store import StoreSettings

SECRET = b"her secret"


def raw(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def opened(tmp_path: Path, keys: list[bytes] | None, seed: int = 0, **more: object) -> LocalTitanic:
    """Open the store with these keys; None: without a key file."""
    key_file = None
    if keys is not None:
        key_file = write_keys(tmp_path / "keys", "\n".join(key.hex() for key in keys))
    life = LocalTitanic(tmp_path / "kept", seed=seed, key_file=key_file, **more)  # type: ignore[arg-type]
    life.wait(0.1)
    return life


def test_bodies_and_keys_are_encrypted_and_survive_restarts(tmp_path: Path) -> None:
    tickets = []
    for seed in range(3):
        life = opened(tmp_path, [ONE], seed)
        tickets += [life.submit(SECRET + b"%d" % n, b"key %d %d" % (seed, n)) for n in range(20)]
        for ticket in tickets:
            assert life.ask(REPLY, ticket)[1].startswith(b"re:her secret")
        life.close()
    for hidden in (SECRET, b"key 0", b"echo"):
        assert hidden not in raw(tmp_path / "kept")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (None, r"the log is encrypted; give its key file \(key_file, --titanic-key-file\)"),
        ([TWO], "encrypted with a key that is not in the key file"),
    ],
)
def test_a_missing_or_wrong_key_is_refused(
    tmp_path: Path, keys: list[bytes] | None, why: str
) -> None:
    life = opened(tmp_path, [ONE])
    ticket = life.submit(SECRET)
    life.close()
    for _ in range(2):  # a failed start must not leave the folder locked, or change it
        with pytest.raises(LogMismatch, match=why):
            opened(tmp_path, keys)
    life = opened(tmp_path, [ONE])
    assert life.ask(REPLY, ticket) == [b"200", b"re:her secret"]
    life.close()


@pytest.mark.parametrize(("before", "after"), [(None, [ONE]), ([ONE], [TWO, ONE])])
def test_with_a_new_key_everything_is_rewritten(
    tmp_path: Path, before: list[bytes] | None, after: list[bytes]
) -> None:
    """So the old key can be removed."""
    life = opened(tmp_path, before)
    tickets = [life.submit(SECRET) for _ in range(50)]
    life.close()
    life = opened(tmp_path, after, 1)
    assert life.store.view().rewriting > 0
    life.compact(500)
    assert life.store.view().rewriting == 0
    moved = life.store.view().moved_bytes
    life.compact(50)
    assert life.store.view().moved_bytes == moved  # it comes to rest
    life.close()
    assert SECRET not in raw(tmp_path / "kept")
    life = opened(tmp_path, after[:1], 2)
    assert [life.ask(REPLY, one) for one in tickets] == [[b"200", b"re:her secret"]] * 50
    life.close()


def test_compaction_and_erasure_come_to_rest_in_an_encrypted_store(tmp_path: Path) -> None:
    life = opened(tmp_path, [ONE])
    tickets = [life.submit(b"", owner=b"bob") for _ in range(200)]
    for ticket in tickets[::3]:
        life.ask(CLOSE, ticket, owner=b"bob")
    life.submit(SECRET, owner=b"ann")
    assert life.ask(ERASE, b"ann") == [b"200", b"1", b""]
    life.compact(500)
    assert life.store.view().rewriting == 0
    view = life.store.view()
    life.compact(100)
    assert life.store.view() == view
    assert life.ask(REPLY, tickets[1], owner=b"bob")[0] == b"200"
    life.close()


def test_at_the_limit_of_the_disk_an_encrypted_store_does_not_compact_for_ever(
    tmp_path: Path,
) -> None:
    settings = StoreSettings(segment_size_bytes=4096, sync=False, disk_bytes_max=40_000)
    key_file = write_keys(tmp_path / "keys", ONE.hex())
    life = LocalTitanic(tmp_path / "kept", settings, key_file=key_file)
    life.wait(0.1)
    answers = [life.ask("titanic.request", b"echo", b"") for _ in range(300)]
    assert answers[-1][0].startswith(b"500 not stored: the store is full")
    life.compact(300)
    view = life.store.view()
    life.compact(100)
    assert life.store.view() == view
    assert view.disk_bytes <= 40_000
    life.close()


# --- settings -------------------------------------------------------------------------------------
def test_memory_is_not_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="memory is not encrypted"):
        TitanicSettings(key_file=tmp_path / "keys")


@pytest.mark.parametrize(
    ("replica", "is_private"),
    [
        ("mdp://127.0.0.1:5555", True),
        ("mdp://localhost:5555", True),
        ("mdp://[::1]:5555", True),
        ("mdp+ipc:///run/broker", True),
        ("mdp://10.0.0.2:5555", False),
        ("mdp://standby:5555", False),
    ],
)
def test_plain_records_do_not_cross_a_network(
    tmp_path: Path, replica: str, is_private: bool
) -> None:
    def settings() -> TitanicSettings:
        return TitanicSettings(tmp_path, replica=replica, key_file=tmp_path / "keys")

    if is_private:
        assert settings().replica == replica
        return
    with pytest.raises(ConfigurationError, match="would cross the network unencrypted"):
        settings()


def test_a_log_in_memory_has_no_keys() -> None:
    life = LocalTitanic(MemoryFolder(), SMALL)
    assert life.store.view().rewriting == 0
    life.close()
