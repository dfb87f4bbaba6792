"""The log of a run, cut everywhere: what was acknowledged by then is there."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.titanic.life import SMALL, Life

from requite.errors import LogCorrupt
from requite.protocols.titanic.wire import CLOSE, REPLY
from requite.storage import MemoryFolder
from requite.storage.memory import MemoryFile
from requite.titanic.store import StoreSettings

RUN = StoreSettings(segment_size_bytes=4096, sync=False, compact_below=0.9)


@dataclass
class Promises:
    """What clients have been told, by a moment."""

    kept: dict[bytes, bytes] = field(default_factory=dict)  # tickets: bodies
    answered: set[bytes] = field(default_factory=set)
    closed: set[bytes] = field(default_factory=set)

    def copy(self) -> Promises:
        return Promises(dict(self.kept), set(self.answered), set(self.closed))

    def check(self, life: Life, closing: set[bytes]) -> None:
        """All of this is so; what was being closed may be there or not."""
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
    """A folder that remembers what was done, in which order."""

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
    """Do to a folder what was done to another."""
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

    def check(self, folder: MemoryFolder, at: int) -> None:
        life = Life(folder, SMALL)
        assert not life.store.report.damaged
        self.promised(at).check(life, self.closing(at))


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
        run.check(copied(folder), at)
        repeated(folder, operation)
    run.check(folder, len(run.history))


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
        run.check(torn, at)


def test_a_flipped_bit_costs_one_record_and_is_reported() -> None:
    """Every byte of a small log in turn. The request that is hit may be lost, or its reply or its
    end; all the others are as they were."""
    folder = MemoryFolder()
    life = Life(folder, SMALL)
    tickets = {life.submit(b"%d" % n): b"re:%d" % n for n in range(4)}
    closed = life.submit(b"closed")
    life.ask(CLOSE, closed)
    life.close()
    name = min(folder.names())
    data = folder.open(name).read(1 << 20, 0)
    for at in range(len(data)):
        hurt = MemoryFolder()
        hurt.create(name, 0).write(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], 0)
        again = Life(hurt, SMALL)
        again.serves = False
        report = again.store.report
        assert report.damaged or report.cut_bytes, at
        wrong = [t for t, reply in tickets.items() if again.ask(REPLY, t) != [b"200", reply]]
        is_back = not again.ask(REPLY, closed)[0].startswith(b"400")
        assert len(wrong) + is_back <= 1, at


def test_a_log_that_cannot_be_read_at_all_says_so() -> None:
    folder = MemoryFolder()
    folder.create("00000000000000000000.seg", 4096).write(b"\xff" * 100, 0)
    with pytest.raises(LogCorrupt, match="cannot be read"):
        Life(folder, SMALL)
