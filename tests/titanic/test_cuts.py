"""The log of a run, truncated everywhere: all acknowledged requests are there."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.titanic.life import SMALL, Life

from requite.errors import LogCorrupt
from requite.protocols.titanic.wire import CLOSE, LIST, REPLY, RETRY
from requite.storage import MemoryFolder
from requite.storage.layout import HEADER_SIZE, MARKER, RECORD_HEADER_SIZE
from requite.storage.memory import MemoryFile
from requite.titanic.store import StoreSettings

RUN = StoreSettings(segment_size_bytes=4096, sync=False, compact_below=0.9)


@dataclass
class Promises:
    """The answers that clients have received by a moment."""

    kept: dict[bytes, bytes] = field(default_factory=dict)  # tickets: bodies
    answered: set[bytes] = field(default_factory=set)
    closed: set[bytes] = field(default_factory=set)

    def copy(self) -> Promises:
        return Promises(dict(self.kept), set(self.answered), set(self.closed))

    def assert_recovers(self, life: Life, closing: set[bytes]) -> None:
        """Check all answers; requests that were being closed may be there or not."""
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
"""What is done to which file: with a number, and bytes (for `rename` the new name)."""


class Recorded(MemoryFolder):
    """A folder that records its operations in order."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Operation] = []

    def create(self, name: str, size: int) -> MemoryFile:
        self.history.append(("create", name, size, b""))
        file = self._files[name] = RecordedFile(self, name, size)
        return file

    def rename(self, old: str, new: str) -> None:
        self.history.append(("rename", old, 0, new.encode()))
        super().rename(old, new)
        file = self._files[new]
        assert isinstance(file, RecordedFile)
        file.name = new

    def remove(self, name: str) -> None:
        self.history.append(("remove", name, 0, b""))
        super().remove(name)


class RecordedFile(MemoryFile):
    def __init__(self, folder: Recorded, name: str, size: int) -> None:
        super().__init__(size)
        self.name = name
        self._folder = folder

    def write(self, data: bytes, offset: int) -> None:
        self._folder.history.append(("write", self.name, offset, bytes(data)))
        super().write(data, offset)

    def truncate(self, size: int) -> None:
        self._folder.history.append(("truncate", self.name, size, b""))
        super().truncate(size)


def repeated(folder: MemoryFolder, operation: Operation) -> None:
    """Replay the operations of one folder on another."""
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
    """The folder as the next process finds it."""
    copy = MemoryFolder()
    for name in folder.names():
        file = folder.open(name)
        copy.create(name, file.size()).write(file.read(file.size(), 0).rstrip(b"\0"), 0)
    return copy


@dataclass
class Run:
    """A run: what was done to the disk, and what had been promised by which operation."""

    history: list[Operation]
    told: list[tuple[int, Promises]]

    def promised(self, at: int) -> Promises:
        return [promises for point, promises in self.told if point <= at][-1]

    def closing(self, at: int) -> set[bytes]:
        """What somebody was about to be told is closed."""
        later = next((one for point, one in self.told if point > at), self.told[-1][1])
        return later.closed - self.promised(at).closed

    def assert_recovers(self, folder: MemoryFolder, at: int) -> None:
        life = Life(folder, SMALL)
        assert not life.store.report.damaged
        self.promised(at).assert_recovers(life, self.closing(at))


@pytest.fixture(scope="module")
def run() -> Run:
    """Submit, collect and close; in small segments, so that there is compaction as well."""
    folder = Recorded()
    life = Life(folder, RUN)
    promises = Promises()
    told = [(0, Promises())]
    for n in range(90):
        body = b"%d " % n + b"x" * (n * 7 % 90)
        life.serves = n % 3 > 0
        ticket = life.submit(body, key=b"k%d" % n if n % 2 else b"")
        promises.kept[ticket] = body
        told.append((len(folder.history), promises.copy()))
        if life.serves:
            assert life.ask(REPLY, ticket) == [b"200", b"re:" + body]
            promises.answered.add(ticket)
            told.append((len(folder.history), promises.copy()))
        if n % 4 < 2:
            assert life.ask(CLOSE, ticket) == [b"200"]
            promises.closed.add(ticket)
            told.append((len(folder.history), promises.copy()))
        life.compact(2)
    assert life.store.view().removed_segments > 2
    return Run(folder.history, told)


@pytest.mark.timeout(120)
def test_the_log_cut_at_every_write(run: Run) -> None:
    assert len(run.history) > 150
    folder = MemoryFolder()
    for at, operation in enumerate(run.history):
        run.assert_recovers(copied(folder), at)
        repeated(folder, operation)
    run.assert_recovers(folder, len(run.history))


@pytest.mark.parametrize("which", [-1, -9])
def test_the_log_cut_at_every_byte_of_a_write(run: Run, which: int) -> None:
    records = [at for at, one in enumerate(run.history) if one[0] == "write" and one[2] >= 64]
    at = records[which]
    what, name, offset, data = run.history[at]
    folder = MemoryFolder()
    for operation in run.history[:at]:
        repeated(folder, operation)
    for cut in range(len(data) + 1):
        torn = copied(folder)
        repeated(torn, (what, name, offset, data[:cut]))
        run.assert_recovers(torn, at)


class Small:
    """A small log: four requests with replies, one that waits, two that were closed, one of which
    had never left; and what was written for a while afterwards."""

    def __init__(self, later_s: float = 15.0) -> None:
        folder = MemoryFolder()
        life = Life(folder, SMALL, attempt_timeout_s=1000.0)
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
        self.end = len(self.data) - RECORD_HEADER_SIZE  # where the record is that ends the segment

    def last_closed(self) -> tuple[int, int]:
        """Two places in the CLOSED of `closed[1]`."""
        uuid = bytes.fromhex(self.closed[1].decode())
        at = self.data.rindex(uuid)
        return at - 3, at + 2

    def hurt(self, *spots: int) -> Life:
        """Turn a bit round in each of these bytes, and start on what is left."""
        data = bytearray(self.data)
        for at in spots:
            data[at] ^= 4
        folder = MemoryFolder()
        folder.create(self.name, 0).write(bytes(data), 0)
        life = Life(folder, SMALL)
        life.serves = False
        life.wait(0.0)
        return life

    def is_whole(self, life: Life) -> bool:
        """Whether everything is as it was."""
        known = all(life.ask(REPLY, t) == [b"200", reply] for t, reply in self.tickets.items())
        gone = all(life.ask(REPLY, ticket)[0].startswith(b"400 no") for ticket in self.closed)
        return known and gone and self.sent(life) == [b"waits"]

    def sent(self, life: Life) -> list[bytes]:
        """The requests that were sent to services."""
        return [call.frames[0] for call in life.submits]


def test_one_flipped_bit_is_mended_and_reported() -> None:
    """Damage every byte of a small log in turn: nothing is lost, and no closed request runs."""
    small = Small()
    for at in range(len(small.data)):
        life = small.hurt(at)
        report = life.store.report
        assert report.mended or at < HEADER_SIZE or at >= small.end, at
        assert report.mended or report.damaged or report.cut_bytes, at
        assert small.is_whole(life), at


def test_what_was_mended_is_written_again() -> None:
    small = Small()
    at = small.data.index(b"waits")
    life = small.hurt(at)
    assert [len(life.store.report.mended), len(life.store.report.damaged)] == [1, 0]
    folder = life.store._log._folder
    life.close()
    assert isinstance(folder, MemoryFolder)
    first = folder.open(small.name)
    first.write(bytes(small.end - HEADER_SIZE), HEADER_SIZE)  # the broken one is gone for good
    again = Life(folder, SMALL)
    again.wait(0.0)
    assert again.ask(REPLY, small.waiting) == [b"200", b"re:waits"]


def test_a_bit_that_turns_round_while_it_runs_is_mended_as_well() -> None:
    folder = MemoryFolder()
    life = Life(folder, SMALL, cache_bytes_max=0)
    ticket = life.submit(b"hi")
    [name] = folder.names()
    file = folder.open(name, writable=True)
    data = file.read(4096, 0)
    at = data.index(b"re:hi")
    file.write(bytes([data[at] ^ 1]), at)
    assert life.ask(REPLY, ticket) == [b"200", b"re:hi"]


def test_what_may_have_been_closed_where_the_log_is_damaged_is_held() -> None:
    """Two bits of each record in turn, which is beyond help. What is hit is not known any more; and
    whatever waits, and may have been closed there, is left to an operator."""
    small = Small()
    spots = [at for at in range(HEADER_SIZE, small.end) if small.data.startswith(MARKER, at)]
    for at in spots:
        life = small.hurt(at + RECORD_HEADER_SIZE + 1, at + RECORD_HEADER_SIZE + 6)
        assert life.store.report.damaged, at
        assert b"recalled" not in small.sent(life), at
        listed = life.ask(LIST, b"", b"", b"poisoned")[1]
        is_held = at in spots[-6:-3]  # all behind that request which cannot be of the last write
        assert (small.waiting in listed) == is_held, at
        assert (b"waits" in small.sent(life)) == (not is_held and at != spots[-7]), at
        assert listed.count(b"ticket") == listed.count(b"may have been answered or closed"), at
        wrong = [t for t, reply in small.tickets.items() if life.ask(REPLY, t) != [b"200", reply]]
        assert len(wrong) <= 1, at


def test_what_a_power_cut_may_have_torn_holds_nothing() -> None:
    """All that is behind the damage may be of one write, of which another part is lost."""
    small = Small(later_s=5.0)
    life = small.hurt(*small.last_closed())
    assert life.store.report.damaged
    assert small.sent(life) == [b"waits"]
    assert life.engine.snapshot().poisoned == 0


def test_what_is_held_is_run_or_dropped_as_an_operator_says() -> None:
    small = Small()
    life = small.hurt(*small.last_closed())
    assert small.sent(life) == []
    assert life.engine.snapshot().poisoned == 1
    assert any("requests: the log is damaged" in warning for warning in life.warnings)
    folder = life.store._log._folder
    life.close()
    assert isinstance(folder, MemoryFolder)
    again = Life(folder, SMALL)
    again.serves = False
    again.wait(0.0)
    assert small.sent(again) == []  # it is remembered
    assert again.ask(RETRY, small.waiting) == [b"200"]
    assert small.sent(again) == [b"waits"]
    assert again.ask(CLOSE, small.waiting) == [b"200"]
    assert again.ask(REPLY, small.waiting)[0].startswith(b"400 no such request")


def test_a_log_that_cannot_be_read_at_all_says_so() -> None:
    folder = MemoryFolder()
    folder.create("00000000000000000000.seg", 4096).write(b"\xff" * 100, 0)
    with pytest.raises(LogCorrupt, match="cannot be read"):
        Life(folder, SMALL)
