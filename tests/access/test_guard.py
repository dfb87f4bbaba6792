"""`Guard`: passwords are checked on a thread, one at a time, and remembered."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.shell.fakes import FakeStream, HostBench
from tests.support.live import eventually

from requite.access import Access
from requite.access.file import AccessFile, parse
from requite.access.guard import Guard
from requite.access.passwords import hash_password
from requite.chronicle import Kind
from requite.errors import ConfigurationError
from requite.framing import CredentialsRefused, Login
from requite.principal import Credential
from requite.shell.guarding import guarded_by

FILE = f'[user.ann]\npassword = "{hash_password("right")}"\n'.encode()
PROOF = Credential("plain", ("ann", "hash"))


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard(Access(parse(FILE)), changed=lambda: None)
    yield guard
    await guard.close()


class Checks:
    """A check that waits until it is released, and records its threads."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.threads: list[int] = []
        self.running = self.most = 0

    def __call__(self, _user: str, _password: str) -> Credential | None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.append(threading.get_ident())
        assert self.release.wait(10)
        self.running -= 1
        return PROOF


async def test_a_password_is_checked_beside_the_event_loop_and_then_recalled(guard: Guard) -> None:
    for is_known in (False, True):
        login = Login("ann", "right", guard.access.check_password)
        decided = asyncio.Event()
        guard.verify(login, decided.set)
        assert decided.is_set() is is_known
        await asyncio.wait_for(decided.wait(), 10)
        assert login.proof is not None
        assert login.proof.names[0] == "ann"


async def test_a_wrong_password_proves_nothing(guard: Guard) -> None:
    login = Login("ann", "wrong", guard.access.check_password)
    decided = asyncio.Event()
    guard.verify(login, decided.set)
    await asyncio.wait_for(decided.wait(), 10)
    assert login.proof is None


async def test_one_password_is_checked_at_a_time(guard: Guard) -> None:
    checks, ends = Checks(), asyncio.Queue[int]()
    for number in range(4):
        guard.verify(Login("bob", "x", checks), lambda number=number: ends.put_nowait(number))
    checks.release.set()
    assert [await asyncio.wait_for(ends.get(), 10) for _ in range(4)] == [0, 1, 2, 3]
    assert checks.most == 1
    assert threading.get_ident() not in checks.threads


async def test_a_withdrawn_check_does_not_run(guard: Guard) -> None:
    checks, ends = Checks(), asyncio.Queue[str]()
    guard.verify(Login("bob", "x", checks), lambda: ends.put_nowait("first"))
    withdraw = guard.verify(Login("bob", "x", checks), lambda: ends.put_nowait("withdrawn"))
    guard.verify(Login("bob", "x", checks), lambda: ends.put_nowait("last"))
    withdraw()
    checks.release.set()
    assert [await asyncio.wait_for(ends.get(), 10) for _ in range(2)] == ["first", "last"]
    assert len(checks.threads) == 2


async def test_a_check_that_fails_admits_nobody(
    guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_user: str, _password: str) -> Credential | None:
        raise MemoryError("no memory for the hash")

    login = Login("bob", "secret", fail)
    decided = asyncio.Event()
    with caplog.at_level(logging.ERROR, "requite.access"):
        guard.verify(login, decided.set)
        await asyncio.wait_for(decided.wait(), 10)
    assert login.proof is None
    assert "no memory for the hash" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("counts_requests", [True, False])
async def test_limits_that_the_listener_does_not_enforce_are_named_once(
    counts_requests: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.toml"
    path.touch(0o600)
    path.write_text(
        "[user.ann]\nquota = 'small'\n[user.bob]\n"
        "[quota.small]\nrequests = 5\nbytes = '1M'\n[quota.default]\nconnections = 5\n"
    )
    guard = Guard(path, changed=lambda: None, counts_requests=counts_requests)
    guard.start()
    path.write_text("[user.bob]\n[quota.default]\ngroups = 1\n")
    await guard.read_again()
    path.write_text("".join(f"[user.u{n}]\n" for n in range(22)) + "[quota.default]\nrequests = 1")
    await guard.read_again()
    await guard.close()
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    if counts_requests:
        assert told == []
        return
    assert told[:2] == [
        "only a broker enforces these limits of requests of users: ann (bytes, requests)",
        "only a broker enforces these limits of requests of users: bob (groups)",
    ]
    assert told[2].endswith("u19 (requests); and 2 more")


@pytest.mark.parametrize(
    ("refusal", "credential", "why"),
    [
        (CredentialsRefused("x", PROOF), "plain:ann", "a wrong password, or an unknown user"),
        (CredentialsRefused("x", Credential("curve", ("k",))), "curve:k", "no user has this key"),
        (CredentialsRefused("not UTF-8"), "", "not UTF-8"),
    ],
)
def test_a_refused_login_is_recorded_with_what_was_shown(
    refusal: CredentialsRefused, credential: str, why: str
) -> None:
    rows: list[tuple[Kind, str, str]] = []
    guard = Guard(Access(parse(FILE)), changed=lambda: None, record=lambda *row: rows.append(row))
    guard.login_refused("tcp://192.0.2.7:9", refusal)
    assert rows == [(Kind.DENIED, credential, f"{why}, from tcp://192.0.2.7:9")]


class _Reads:
    """Stands in for the reading of an access file, which takes as long as the test wants."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.begun: list[threading.Event] = []

    def __call__(self, *, anyway: bool = False) -> AccessFile:
        number = len(self.begun)
        go_on = threading.Event()
        self.begun.append(go_on)
        assert go_on.wait(10)
        return parse(f"[user.read{number}]\nlocal = {number}\n".encode())


async def test_an_older_content_is_never_applied_after_a_newer_one(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal arrives while a slow reading of the file goes on."""
    reads = _Reads(guard)
    monkeypatch.setattr(guard.access, "changed_file", reads)
    first, second = (asyncio.ensure_future(guard.read_again()) for _ in range(2))
    await asyncio.to_thread(eventually, lambda: reads.begun, "the first reading begins")
    await asyncio.sleep(0.05)
    assert len(reads.begun) == 1, "the second one has to wait: it must see what is newer"
    reads.begun[0].set()
    await asyncio.wait_for(first, 10)
    await asyncio.to_thread(eventually, lambda: len(reads.begun) == 2, "the second one begins")
    reads.begun[1].set()
    await asyncio.wait_for(second, 10)
    assert [user.name for user in guard.access.users] == ["read1"]


async def test_an_unexpected_error_does_not_end_the_following_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("requite.access.guard._LOOK_EVERY_S", 0.01)
    path = tmp_path / "access.toml"
    path.touch(0o600)
    path.write_bytes(FILE)
    changed = asyncio.Event()
    guard = Guard(path, changed=changed.set)
    real, fails = guard.access.changed_file, [RuntimeError("a bug"), OSError("a disk")]

    def sometimes(*, anyway: bool = False) -> AccessFile | None:
        if fails:
            raise fails.pop()
        return real(anyway=anyway)

    monkeypatch.setattr(guard.access, "changed_file", sometimes)
    guard.start()
    path.write_text("[user.bob]\nlocal = 1\n")
    await asyncio.wait_for(changed.wait(), 10)
    await guard.close()
    assert [user.name for user in guard.access.users] == ["bob"]
    assert "a bug" in caplog.text


def test_a_file_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.toml"
    path.touch(0o600)
    path.write_bytes(FILE)
    access = Access.read(path)
    path.write_text("[user.bob]\nlocal = 1\n")

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("requite.access.file.os.open", fail)
        with pytest.raises(ConfigurationError, match="too many open files"):
            access.changed_file()
    file = access.changed_file()
    assert file is not None
    assert list(file.users) == ["bob"]


async def test_a_password_that_arrives_while_the_listener_closes_is_not_checked(
    guard: Guard,
) -> None:
    await guard.close()
    login = Login("ann", "right", guard.access.check_password)
    guard.verify(login, pytest.fail)()
    assert not login.is_decided


async def test_each_connection_has_one_row_that_says_whether_it_is_admitted() -> None:
    rows: list[tuple[Kind, str, str]] = []
    file = b'[user.ann]\nlocal = 7\nquota = "small"\n[quota.small]\nconnections = 1'
    guard = Guard(Access(parse(file)), lambda: None, record=lambda *row: rows.append(row))
    bench = HostBench(**guarded_by(guard))
    for name in ("a", "b"):
        stream = FakeStream(name)
        stream.peer_credential = Credential("local", ("7",))
        bench.host.received(bench.host.opened(stream, accepted=True), b"\n")
    bench.host.rights_changed()  # asks again who owns the first one
    reason = "ann has 1 connections, the maximum (connections of its quota)"
    assert rows == [(Kind.ADMITTED, "ann", "local:7 from a"), (Kind.DENIED, "ann", reason)]
    await guard.close()
