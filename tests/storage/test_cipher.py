"""Encryption of records: the cipher, its key file, and logs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import ConfigurationError, LogCorrupt, LogFull, LogMismatch
from requite.storage import Damage, Log, LogReader, LogSettings, Record
from requite.storage.cipher import (
    SEAL_SIZE,
    SEALED,
    Cipher,
    _Key,
    read_key_file,
    require_plain,
)
from requite.storage.layout import PAYLOAD_SIZE_MAX

ONE, TWO = b"\1" * 32, b"\2" * 32
SMALL = LogSettings(segment_size_bytes=4096)


def write_keys(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


# --- the cipher -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "bound", "text"),
    [
        (b"\1" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (
            b"\3" * 32,
            b"c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
        ),
    ],
)
def test_the_vectors_of_the_specification(key: bytes, bound: bytes, text: str) -> None:
    """C2SP, XAES-256-GCM, "Test vectors": both branches of the doubling."""
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert _Key(key).seal(nonce, b"XAES-256-GCM", bound).hex() == text
    assert _Key(key).unseal(nonce, bytes.fromhex(text), bound) == b"XAES-256-GCM"


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_a_sealed_payload_opens(payload: bytes, number: int) -> None:
    cipher = Cipher([ONE], b"TITN")
    stored = cipher.seal(payload, number)
    assert (stored[0], len(stored)) == (SEALED, len(payload) + SEAL_SIZE)
    assert cipher.unseal(stored, number) == payload
    assert cipher.seal(payload, number) != stored  # another nonce
    assert cipher.is_current(stored)


@pytest.mark.parametrize("at", [5, 28, 29, -1])
def test_an_altered_payload_does_not_open(at: int) -> None:
    cipher = Cipher([ONE], b"TITN")
    stored = bytearray(cipher.seal(b"payload", 7))
    stored[at] ^= 1
    with pytest.raises(LogCorrupt, match="an encrypted record was altered"):
        cipher.unseal(bytes(stored), 7)


@pytest.mark.parametrize("size", range(SEAL_SIZE))
def test_a_truncated_payload_does_not_open(size: int) -> None:
    cipher = Cipher([ONE], b"TITN")
    stored = cipher.seal(b"payload", 7)[: size or 1]
    with pytest.raises((LogCorrupt, LogMismatch)):
        cipher.unseal(stored, 7)


def test_a_record_cannot_be_moved() -> None:
    stored = Cipher([ONE], b"TITN").seal(b"payload", 7)
    for cipher, number in ((Cipher([ONE], b"TITN"), 8), (Cipher([ONE], b"DEDU"), 7)):
        with pytest.raises(LogCorrupt):
            cipher.unseal(stored, number)


def test_keys_are_rotated() -> None:
    old = Cipher([ONE], b"TITN").seal(b"payload", 7)
    both = Cipher([TWO, ONE], b"TITN")
    assert both.unseal(old, 7) == b"payload"
    assert not both.is_current(old)
    new = both.seal(b"payload", 7)
    assert both.is_current(new)
    assert Cipher([TWO], b"TITN").unseal(new, 7) == b"payload"
    with pytest.raises(LogMismatch, match="encrypted with a key that is not in the key file"):
        Cipher([ONE], b"TITN").unseal(new, 7)


def test_plain_payloads_are_told_from_sealed_ones() -> None:
    cipher = Cipher([ONE], b"TITN")
    assert cipher.unseal(b"\1plain", 7) == b"\1plain"
    assert not cipher.is_current(b"\1plain")
    require_plain(b"\1plain", "--key-file")
    with pytest.raises(LogMismatch, match=r"encrypted; give its key file \(--key-file\)"):
        require_plain(cipher.seal(b"x", 7), "--key-file")


# --- the key file ---------------------------------------------------------------------------------
def test_keys_are_read_in_order(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "k", f"# new\n{TWO.hex()}\n\n  {ONE.hex().upper()}  # old\n")
    assert read_key_file(path) == [TWO, ONE]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no key; make one: openssl rand -hex 32"),
        ("# none\n", "has no key"),
        ("00\n", "line 1 of the key file .* is not a key: 64 hex digits"),
        (f"{ONE.hex()}\nsecret-{'0' * 57}\n", "line 2 of the key file .* is not a key"),
    ],
)
def test_invalid_key_files_are_refused_without_showing_them(
    tmp_path: Path, text: str, why: str
) -> None:
    path = write_keys(tmp_path / "k", text)
    with pytest.raises(ConfigurationError, match=why) as refused:
        read_key_file(path)
    assert "secret" not in str(refused.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "k", ONE.hex(), 0o644)
    with pytest.raises(ConfigurationError, match=r"other users can read the key file .*chmod 600"):
        read_key_file(path)
    with pytest.raises(ConfigurationError, match=r"cannot read the key file .*No such file"):
        read_key_file(tmp_path / "missing")


# --- logs -----------------------------------------------------------------------------------------
def test_a_log_is_encrypted(tmp_path: Path) -> None:
    payloads = [b"secret %d" % n * 20 for n in range(100)]
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
        positions = [log.append([payload])[0] for payload in payloads]
        assert len(log.sealed) > 3
        assert [log.read_at(position) for position in positions] == payloads
        reader = log.reader()
        items = list(reader.tail())
        assert [bytes(item.payload) for item in items if isinstance(item, Record)] == payloads
        assert [item.position for item in items if isinstance(item, Record)] == positions
        assert reader.outdated == set()
        last = items[50]
        assert isinstance(last, Record)
        rest = [item for item in reader.tail(last) if isinstance(item, Record)]
        assert [item.number for item in rest] == list(range(51, 100))
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret" not in raw
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())


def test_records_of_several_keys_and_plain_ones_are_read(tmp_path: Path) -> None:
    for keys in (None, [ONE], [TWO, ONE]):
        cipher = None if keys is None else Cipher(keys, b"TEST")
        with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
            log.commit([b"x"])
            reader = log.reader()
            found = [bytes(item.payload) for item in reader.tail() if isinstance(item, Record)]
    assert found == [b"x"] * 3
    assert reader.outdated == {0, 1}


def test_an_altered_record_is_damage(tmp_path: Path) -> None:
    """One that an attacker has altered, checksum and all."""
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL) as log:
        log.commit([bytes((SEALED,)) + bytes(60)])
    stranger = Cipher([ONE], b"ELSE").seal(b"forged", 1)
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL) as log:
        log.commit([stranger])
        [position] = log.commit([b"plain"])
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
        items = list(log.reader().read(1))
        damage = items[0]
        assert isinstance(damage, Damage)
        assert damage.reason == "an encrypted record was altered"
        assert damage.end == position.offset
        assert log.reader().mend(damage) is None
        with pytest.raises(LogMismatch):
            list(log.reader().read(0))


def test_a_flipped_bit_of_an_encrypted_record_is_repaired(tmp_path: Path) -> None:
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
        [position] = log.commit([b"a payload"])
        segment = next(tmp_path.glob("*.log*"), None) or next(
            file for file in tmp_path.iterdir() if file.stat().st_size >= 4096
        )
        data = bytearray(segment.read_bytes())
        data[position.offset + 60] ^= 4
        segment.write_bytes(data)
        with pytest.raises(LogCorrupt):
            log.read_at(position)
        assert log.reader().mend_at(position) == b"a payload"


def test_the_room_in_a_segment_counts_the_seal(tmp_path: Path) -> None:
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
        log.append([bytes(10)])
        log.append([bytes(log.room())])
        assert log.sealed == ()


def test_a_payload_that_is_too_large_to_be_encrypted_is_refused(tmp_path: Path) -> None:
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", cipher=cipher) as log:
        with pytest.raises(LogFull, match="cannot be encrypted"):
            log.append([bytes(PAYLOAD_SIZE_MAX - SEAL_SIZE + 1)])
        log.append([bytes(PAYLOAD_SIZE_MAX - SEAL_SIZE)])


def test_readers_without_keys_see_only_sealed_payloads(tmp_path: Path) -> None:
    cipher = Cipher([ONE], b"TEST")
    with Log.open(tmp_path, purpose=b"TEST", settings=SMALL, cipher=cipher) as log:
        log.commit([b"secret"])
    [record] = [item for item in LogReader(tmp_path).tail() if isinstance(item, Record)]
    assert record.payload[0] == SEALED
