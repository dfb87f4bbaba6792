"""A log truncated anywhere, or with flipped bits, keeps all acknowledged requests."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.titanic.life import SMALL, LocalTitanic

from requite.errors import LogCorrupt
from requite.protocols.titanic.wire import CLOSE, LIST, REPLY, RETRY
from requite.storage import MemoryFolder
from requite.storage.layout import HEADER_SIZE, MARKER, RECORD_HEADER_SIZE
from requite.storage.memory import MemoryFile
from requite.titanic.store import StoreSettings

RUN = StoreSettings(segment_size_bytes=4096, sync=False, compact_below=0.9)


@dataclass
class Promises:
    """The answers that clients have received so far."""

    kept: dict[bytes, bytes] = field(default_factory=dict)  # ticket -> body
    answered: set[bytes] = field(default_factory=set)
    closed: set[bytes] = field(default_factory=set)

    def copy(self) -> Promises:
        return Promises(dict(self.kept), set(self.answered), set(self.closed))

    def assert_recovers(self, life: LocalTitanic, closing: set[bytes]) -> None:
        """Check all answers. Requests whose CLOSE is unconfirmed may or may not be present."""
        life.serves = False
        for ticket in self.kept.keys() - closing:
            body, answer = self.kept[ticket], life.ask(REPLY, ticket)
            if ticket in self.closed:
                assert answer[0].startswith(b"400"), body
            elif ticket in self.answered:
                assert answer == [b"200", b"re:" + body]
            else:
                assert answer in ([b"300"], [b"200", b"re:" + body])


Operation = tuple[str, str, int, bytes]
"""Operation, file, number (offset or size), and bytes. For `rename` the bytes are the new name."""


class RecordingFolder(MemoryFolder):
    """A folder that records its operations in order."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Operation] = []

    def create(self, name: str, size: int) -> MemoryFile:
        self.history.append(("create", name, size, b""))
        file = self._files[name] = RecordingFile(self, name, size)
        return file

    def rename(self, old: str, new: str) -> None:
        self.history.append(("rename", old, 0, new.encode()))
        super().rename(old, new)
        file = self._files[new]
        assert isinstance(file, RecordingFile)
        file.name = new

    def remove(self, name: str) -> None:
        self.history.append(("remove", name, 0, b""))
        super().remove(name)


class RecordingFile(MemoryFile):
    def __init__(self, folder: RecordingFolder, name: str, size: int) -> None:
        super().__init__(size)
        self.name = name
        self._folder = folder

    def write(self, data: bytes, offset: int) -> None:
        self._folder.history.append(("write", self.name, offset, bytes(data)))
        super().write(data, offset)

    def truncate(self, size: int) -> None:
        self._folder.history.append(("truncate", self.name, size, b""))
        super().truncate(size)


def replay(folder: MemoryFolder, operation: Operation) -> None:
    """Replay an operation of another folder on `folder`."""
    what, name, number, data = operation
    if what == "create":
        folder.create(name, number)
    elif what == "rename":
        folder.rename(name, data.decode())
    elif what == "remove":
        folder.remove(name)
    elif what == "truncate":
        folder.open(name).truncate(number)
    else:
        folder.open(name).write(data, number)


def copied(folder: MemoryFolder) -> MemoryFolder:
    """Return the folder as the next process finds it."""
    copy = MemoryFolder()
    for name in folder.names():
        file = folder.open(name)
        copy.create(name, file.size()).write(file.read(file.size(), 0).rstrip(b"\0"), 0)
    return copy


@dataclass
class Run:
    """Disk operations, and the promises made after a number of them."""

    history: list[Operation]
    milestones: list[tuple[int, Promises]]

    def promised(self, at: int) -> Promises:
        return [promises for point, promises in self.milestones if point <= at][-1]

    def closing(self, at: int) -> set[bytes]:
        """Return tickets whose CLOSE is confirmed next, so that it may already be on disk."""
        later = next((one for point, one in self.milestones if point > at), self.milestones[-1][1])
        return later.closed - self.promised(at).closed

    def assert_recovers(self, folder: MemoryFolder, at: int) -> None:
        life = LocalTitanic(folder, SMALL)
        assert not life.store.report.damaged
        self.promised(at).assert_recovers(life, self.closing(at))


@pytest.fixture(scope="module")
def run() -> Run:
    """Submit, collect and close in log segments, so that compaction runs too."""
    folder = RecordingFolder()
    life = LocalTitanic(folder, RUN)
    promises = Promises()
    milestones = [(0, Promises())]
    for n in range(90):
        body = b"%d " % n + b"x" * (n * 7 % 90)
        life.serves = n % 3 > 0
        ticket = life.submit(body, key=b"k%d" % n if n % 2 else b"")
        promises.kept[ticket] = body
        milestones.append((len(folder.history), promises.copy()))
        if life.serves:
            assert life.ask(REPLY, ticket) == [b"200", b"re:" + body]
            promises.answered.add(ticket)
            milestones.append((len(folder.history), promises.copy()))
        if n % 4 < 2:
            assert life.ask(CLOSE, ticket) == [b"200"]
            promises.closed.add(ticket)
            milestones.append((len(folder.history), promises.copy()))
        life.compact(2)
    assert life.store.view().removed_segments > 2
    return Run(folder.history, milestones)


@pytest.mark.timeout(120)
def test_the_log_cut_at_every_write(run: Run) -> None:
    assert len(run.history) > 150
    folder = MemoryFolder()
    for at, operation in enumerate(run.history):
        run.assert_recovers(copied(folder), at)
        replay(folder, operation)
    run.assert_recovers(folder, len(run.history))


@pytest.mark.parametrize("which", [-1, -9])
def test_the_log_cut_at_every_byte_of_a_write(run: Run, which: int) -> None:
    records = [at for at, one in enumerate(run.history) if one[0] == "write" and one[2] >= 64]
    at = records[which]
    what, name, offset, data = run.history[at]
    folder = MemoryFolder()
    for operation in run.history[:at]:
        replay(folder, operation)
    for cut in range(len(data) + 1):
        torn = copied(folder)
        replay(torn, (what, name, offset, data[:cut]))
        run.assert_recovers(torn, at)


class SmallLog:
    """A log log in one segment, to be damaged by tests.

    It has two closed requests, one of which was never answered; one waiting request; three answered
    requests; and two answered ones from the end, one of them `later_s` later.
    """

    def __init__(self, later_s: float = 15.0) -> None:
        folder = MemoryFolder()
        life = LocalTitanic(folder, SMALL, attempt_timeout_s=1000.0)
        self.tickets = {life.submit(b"%d" % n): b"re:%d" % n for n in range(4)}
        life.serves = False
        self.closed = [life.submit(b"recalled"), next(iter(self.tickets))]
        self.waiting = life.submit(b"waits")
        for ticket in self.closed:
            life.ask(CLOSE, ticket)
        self.tickets.pop(self.closed[1])
        life.serves = True
        for seconds in (0.0, later_s):
            life.wait(seconds)
            self.tickets[life.submit(b"later %d" % seconds)] = b"re:later %d" % seconds
        life.close()
        self.name = min(folder.names())
        self.data = folder.open(self.name).read(1 << 20, 0)
        self.end = len(self.data) - RECORD_HEADER_SIZE  # offset of the record that ends the segment

    def last_closed(self) -> tuple[int, int]:
        """Return two offsets in the CLOSED record of `closed[1]`."""
        uuid = bytes.fromhex(self.closed[1].decode())
        at = self.data.rindex(uuid)
        return at - 3, at + 2

    def flip_bits(self, *spots: int) -> LocalTitanic:
        """Flip a bit at each offset; return a Titanic that starts on the damaged log."""
        data = bytearray(self.data)
        for at in spots:
            data[at] ^= 4
        folder = MemoryFolder()
        folder.create(self.name, 0).write(bytes(data), 0)
        life = LocalTitanic(folder, SMALL)
        life.serves = False
        life.wait(0.0)
        return life

    def is_intact(self, life: LocalTitanic) -> bool:
        """Return whether no request is lost, and no closed one returns."""
        known = all(life.ask(REPLY, t) == [b"200", reply] for t, reply in self.tickets.items())
        gone = all(life.ask(REPLY, ticket)[0].startswith(b"400 no") for ticket in self.closed)
        return known and gone and self.sent(life) == [b"waits"]

    def sent(self, life: LocalTitanic) -> list[bytes]:
        """Return the bodies of requests that were sent to services."""
        return [call.frames[0] for call in life.submits]


def test_one_flipped_bit_is_corrected_and_reported() -> None:
    """Damage each byte in turn: nothing is lost, and no closed request runs."""
    log = SmallLog()
    for at in range(len(log.data)):
        life = log.flip_bits(at)
        report = life.store.report
        assert report.mended or at < HEADER_SIZE or at >= log.end, at
        assert report.mended or report.damaged or report.cut_bytes, at
        assert log.is_intact(life), at


def test_a_corrected_record_is_rewritten() -> None:
    log = SmallLog()
    at = log.data.index(b"waits")
    life = log.flip_bits(at)
    assert [len(life.store.report.mended), len(life.store.report.damaged)] == [1, 0]
    folder = life.store._log._folder
    life.close()
    assert isinstance(folder, MemoryFolder)
    first = folder.open(log.name)
    first.write(bytes(log.end - HEADER_SIZE), HEADER_SIZE)  # overwrite the damaged original
    again = LocalTitanic(folder, SMALL)
    again.wait(0.0)
    assert again.ask(REPLY, log.waiting) == [b"200", b"re:waits"]


def test_a_bit_flipped_at_run_time_is_corrected() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder, SMALL, cache_bytes_max=0)
    ticket = life.submit(b"hi")
    [name] = folder.names()
    file = folder.open(name, writable=True)
    data = file.read(4096, 0)
    at = data.index(b"re:hi")
    file.write(bytes([data[at] ^ 1]), at)
    assert life.ask(REPLY, ticket) == [b"200", b"re:hi"]


def test_requests_possibly_closed_in_a_damaged_log_are_held() -> None:
    """Two flipped bits in a record cannot be corrected, so the record is lost.

    A waiting request is held for an operator if its CLOSED record may be among the lost ones.
    """
    log = SmallLog()
    spots = [at for at in range(HEADER_SIZE, log.end) if log.data.startswith(MARKER, at)]
    for at in spots:
        life = log.flip_bits(at + RECORD_HEADER_SIZE + 1, at + RECORD_HEADER_SIZE + 6)
        assert life.store.report.damaged, at
        assert b"recalled" not in log.sent(life), at
        listed = life.ask(LIST, b"", b"", b"poisoned")[1]
        is_held = at in spots[-6:-3]  # their CLOSED record may be lost
        assert (log.waiting in listed) == is_held, at
        assert (b"waits" in log.sent(life)) == (not is_held and at != spots[-7]), at
        assert listed.count(b"ticket") == listed.count(b"may have been answered or closed"), at
        wrong = [t for t, reply in log.tickets.items() if life.ask(REPLY, t) != [b"200", reply]]
        assert len(wrong) <= 1, at


def test_damage_in_the_last_write_holds_nothing() -> None:
    """The damage and all records after it may belong to one torn, unacknowledged write."""
    log = SmallLog(later_s=5.0)
    life = log.flip_bits(*log.last_closed())
    assert life.store.report.damaged
    assert log.sent(life) == [b"waits"]
    assert life.engine.snapshot().poisoned == 0


def test_an_operator_can_run_or_drop_held_requests() -> None:
    log = SmallLog()
    life = log.flip_bits(*log.last_closed())
    assert log.sent(life) == []
    assert life.engine.snapshot().poisoned == 1
    assert any("requests: the log is damaged" in warning for warning in life.warnings)
    folder = life.store._log._folder
    life.close()
    assert isinstance(folder, MemoryFolder)
    again = LocalTitanic(folder, SMALL)
    again.serves = False
    again.wait(0.0)
    assert log.sent(again) == []  # the hold survives a restart
    assert again.ask(RETRY, log.waiting) == [b"200"]
    assert log.sent(again) == [b"waits"]
    assert again.ask(CLOSE, log.waiting) == [b"200"]
    assert again.ask(REPLY, log.waiting)[0].startswith(b"400 no such request")


def test_an_unreadable_log_is_reported_as_corrupt() -> None:
    folder = MemoryFolder()
    folder.create("00000000000000000000.seg", 4096).write(b"\xff" * 100, 0)
    with pytest.raises(LogCorrupt, match="cannot be read"):
        LocalTitanic(folder, SMALL)
