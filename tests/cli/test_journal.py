"""`requite journal tail`, `stats`, `export` and `ship` with intact and damaged journals."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.cli.command import requite, running
from tests.journal.rows import EVENTS, SPAN
from tests.support.live import eventually

from requite.chronicle import EventRow, Kind, WriterRole
from requite.cli.exit_codes import ExitCode
from requite.cli.verbs import JOURNAL
from requite.journal import Journal
from requite.journal.blocks import PURPOSE
from requite.journal.encode import encode_spans
from requite.journal.event import Event
from requite.journal.reader import events
from requite.journal.strings import Strings
from requite.request import Status
from requite.storage import Log

pytestmark = pytest.mark.e2e

CALL_ID = SPAN[4].hex()
DESCRIBED = {
    "tail": (
        "DIR",
        "--follow",
        "-f",
        "--lines",
        "-n",
        "--request",
        "--service",
        "--kind",
        "--json",
    ),
    "stats": ("DIR", "--json", "dropped", "missing"),
    "export": ("DIR", "--to", ".parquet", ".jsonl"),
    "ship": ("DIR", "TARGET", "--follow", "--every", "--json"),
}


def write(path: Path, role: WriterRole, number: int) -> Journal:
    """Start a journal, and add three spans and some events; return it open."""
    journal = Journal(path, role, bytes([number] * 8))
    journal.start()
    journal.chronicle.spans += [SPAN] * 3
    journal.chronicle.event_rows += EVENTS
    return journal


@pytest.fixture(scope="module")
def journal(tmp_path_factory) -> Path:
    """An intact journal of a broker and a client."""
    path = tmp_path_factory.mktemp("journals") / "journal"
    for number, role in enumerate((WriterRole.BROKER, WriterRole.CLIENT), 1):
        write(path, role, number).close()
    return path


@pytest.fixture
def damaged(tmp_path) -> Path:
    """A journal with one flipped bit in a block."""
    write(tmp_path, WriterRole.BROKER, 1).close()
    (file,) = tmp_path.glob("*/*.seg")
    data = bytearray(file.read_bytes())
    data[data.index(SPAN[4])] ^= 1
    file.write_bytes(bytes(data))
    return tmp_path


@pytest.mark.parametrize("verb", JOURNAL.verbs, ids=lambda verb: verb.name)
def test_the_help_lists_the_arguments_and_has_an_example(verb):
    ended = requite(*verb.words.split(), "--help")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"Usage: requite {verb.words} {verb.arguments} [OPTIONS]")
    assert f"$ requite {verb.words} " in ended.out
    for word in (*DESCRIBED[verb.name], "--verbose"):
        assert word in ended.out


@pytest.mark.parametrize("verb", ["tail", "stats", "export"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.touch(), "is a file"),
        (lambda path: (path / "photos").mkdir(parents=True), "it contains photos, and no log"),
    ],
)
def test_paths_without_a_journal_are_refused(verb, make, message, tmp_path):
    make(tmp_path / "x")
    options = ("--to", "-") if verb == "export" else ()
    ended = requite("journal", verb, str(tmp_path / "x"), *options)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


# --- tail -----------------------------------------------------------------------------------------
def test_tail_shows_the_newest_events_one_per_line(journal):
    ended = requite("journal", "tail", str(journal), "-n", "12")
    assert (ended.code, ended.err) == (0, "")
    day, *lines = ended.out.splitlines()
    assert day.endswith(" UTC")
    # The spans have times close to the start of the machine, which may be on an earlier day.
    lines = [line for line in lines if not line.endswith(" UTC")]
    assert len(lines) == 12
    assert any("  broker 0101  answered     " + CALL_ID in line for line in lines)
    assert any("FAILED, RemoteFailure, out of stock, attempt 2" in line for line in lines)
    assert lines[-1].endswith("client 0202  closed")


def test_tail_shows_a_request_with_all_of_its_events(journal):
    ended = requite("journal", "tail", str(journal), "--request", CALL_ID.upper())
    lines = ended.out.splitlines()[1:]
    assert len(lines) == 12 + 9 + 4  # per log, 3 spans of 4 or 3 events, and 2 event rows
    assert all(CALL_ID in line for line in lines)
    nothing = requite("journal", "tail", str(journal), "--request", "f" * 32)
    assert (nothing.code, nothing.out) == (0, "")


def test_tail_selects_by_service_and_kind(journal):
    ended = requite("journal", "tail", str(journal), "--kind", "queued", "--service", "echo")
    assert [line.split()[3] for line in ended.out.splitlines()[1:]] == ["queued"] * 3
    assert requite("journal", "tail", str(journal), "--service", "nobody").out == ""


def test_tail_shows_heartbeats_only_on_request(tmp_path):
    with Journal(tmp_path, WriterRole.BROKER, bytes(8)) as journal:
        journal.chronicle.event_rows += [EventRow(1.0, Kind.HEARTBEAT)] * 30
    assert "heartbeat" not in requite("journal", "tail", str(tmp_path)).out
    for words in (("--heartbeats", "-n", "99"), ("--kind", "heartbeat", "-n", "99")):
        assert requite("journal", "tail", str(tmp_path), *words).out.count("heartbeat") == 30


def test_tail_writes_json_objects(journal):
    ended = requite("journal", "tail", str(journal), "--json", "-n", "50")
    records = [json.loads(line) for line in ended.out.splitlines()]
    assert Counter(each["kind"] for each in records) == Counter(e.kind for e in events(journal))
    assert records == sorted(records, key=lambda each: each["ts"])
    assert {name for each in records for name in each} <= set(Event._fields)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "queued2"), "no kind `queued2`; the kinds are accepted, queued"),
        (("--request", "xyz"), "32 hexadecimal digits"),
        (("-n", "-1"), "must be >= 0"),
    ],
)
def test_tail_refuses_invalid_options(journal, words, message):
    ended = requite("journal", "tail", str(journal), *words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message.lower() in ended.err.lower()


def test_tail_follows_old_and_new_logs(tmp_path):
    first = write(tmp_path, WriterRole.BROKER, 1)
    with running("journal", "tail", str(tmp_path), "-f", "-n", "50", "--json") as tail:
        first.chronicle.event_rows.append(EventRow(1.0, Kind.REFUSED, service=b"one"))
        kinds = []
        while "refused" not in kinds:
            kinds.append(json.loads(tail.line())["kind"])
        write(tmp_path, WriterRole.CLIENT, 2).close()
        while "closed" not in kinds:
            kinds.append(json.loads(tail.line())["kind"])
        first.close()
        while kinds.count("closed") < 2:
            kinds.append(json.loads(tail.line())["kind"])
        tail.send(signal.SIGINT)
        assert tail.end() == (0, "", "")
    assert kinds.count("sent") == 3
    assert kinds.count("refused") == 1


def test_tail_shows_damage_in_its_place(damaged):
    ended = requite("journal", "tail", str(damaged), "-n", "50")
    assert ended.code == ExitCode.FAILED
    assert "not decoded" in ended.out
    assert "all other events were read" in ended.err
    assert "closed" in ended.out


# --- stats ----------------------------------------------------------------------------------------
def test_stats_count_per_log_and_per_kind(journal):
    ended = requite("journal", "stats", str(journal))
    assert (ended.code, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    assert rows[0] == ["log", "from", "to", "events", "size", "state"]
    (broker,) = (row for row in rows if row[0] == "broker-0101010101010101")
    assert broker[-4] == "16"
    assert broker[-1] == "closed"
    assert ["kind", "broker", "client"] in rows
    assert ["accepted", "4", "4"] in rows
    assert ["queued", "3"] in rows


def test_stats_as_json(journal):
    record = requite("journal", "stats", str(journal), "--json").record
    (broker, client) = record["logs"]
    assert (broker["role"], client["role"]) == ("broker", "client")
    assert broker["events"]["dispatched"] == 3
    assert broker["next_seq"] == 1 + 4 * 3 + 2 + 1
    assert (broker["dropped"], broker["missing"], broker["flaws"]) == (0, 0, {})


def test_stats_of_a_journal_in_use_with_losses(tmp_path):
    with Journal(tmp_path, WriterRole.BROKER, bytes(8)) as journal:
        journal.chronicle.dropped = 1_234
        journal.chronicle.event_rows.append(EventRow(1.0, Kind.ANSWERED, outcome=Status.OK))
        while journal.status().events < 3:
            assert not journal.status().failure
        ended = requite("journal", "stats", str(tmp_path))
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    assert rows[0][-2:] == ["state", "dropped"]
    assert rows[2][-2:] == ["open", "1,234"]


def test_stats_report_damage(damaged):
    ended = requite("journal", "stats", str(damaged))
    assert ended.code == ExitCode.FAILED
    assert "checksum" in ended.err
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    assert rows[0][-2:] == ["missing", "damage"]
    assert rows[2][-2:] == ["12", "1"]


@pytest.mark.parametrize(
    ("left", "state", "message"),
    [
        (lambda data: data[:-100], "cut", "cut off"),
        (lambda data: data[:-24], "cut", "cut off"),  # only END is missing
        (lambda data: data[:-100] + bytes(100), "cut", "cut off"),
        (lambda data: data[:-100].ljust(16 << 20, b"\0"), "torn", "the last write is not complete"),
    ],
    ids=["cut", "END", "zeros", "torn"],
)
def test_a_truncated_segment_is_reported(tmp_path, left, state, message):
    write(tmp_path, WriterRole.CLIENT, 1).close()
    (file,) = tmp_path.glob("*/*.seg")
    file.write_bytes(left(file.read_bytes()))
    ended = requite("journal", "stats", str(tmp_path), "--json")
    assert (ended.code, ended.record["logs"][0]["state"]) == (ExitCode.FAILED, state)
    assert message in ended.err
    for words in (("stats",), ("tail",), ("export", "--to", "-")):
        ended = requite("journal", words[0], str(tmp_path), *words[1:])
        assert ended.code == ExitCode.FAILED
        assert message in ended.err
    assert '"kind": "answered"' in ended.out


def test_a_log_without_an_end_is_incomplete(tmp_path):
    write(tmp_path, WriterRole.CLIENT, 1).close()
    (folder,) = tmp_path.glob("client-*")
    with Log.open(folder, purpose=PURPOSE) as log:  # the new segment has no END
        log.append([encode_spans([SPAN], Strings(), 0, 99)])
    ended = requite("journal", "stats", str(tmp_path))
    assert ended.code == ExitCode.FAILED
    assert (
        f"incomplete: the end of the log was not written, or is missing: {folder.name}" in ended.err
    )
    assert "incomplete" in ended.out


def test_a_deleted_log_is_reported_as_missing(tmp_path):
    for name in (bytes(8), bytes(7) + b"1"):
        with Journal(tmp_path, WriterRole.BROKER, name):
            """Write the first and the last event only."""
    gone = tmp_path / f"broker-{bytes(8).hex()}"
    shutil.rmtree(gone)
    ended = requite("journal", "stats", str(tmp_path))
    assert f"missing: the log began here, and its files are not there: {gone.name}" in ended.err
    assert ended.code == 1
    (tmp_path / ".logs" / gone.name).unlink()  # forget the log
    assert requite("journal", "stats", str(tmp_path)).code == 0


def test_a_journal_is_shipped_and_followed(tmp_path):
    source, target = tmp_path / "journal", tmp_path / "copy"
    write(source, WriterRole.BROKER, 2).close()
    ended = requite("journal", "ship", str(source), str(target), "--json")
    assert (ended.code, json.loads(ended.out)["segments"]) == (0, 1)
    words = (str(source), str(target), "--follow", "--every", "0.01")
    with running("journal", "ship", *words) as ship:
        write(source, WriterRole.CLIENT, 3).close()
        eventually(lambda: len(list(events(target))) == len(list(events(source))), "it is shipped")
        ship.send(signal.SIGTERM)
        assert ship.end()[0] == 0
    assert [*events(target)] == [*events(source)]


def test_a_failure_to_ship_is_reported(tmp_path):
    write(tmp_path / "journal", WriterRole.BROKER, 1).close()
    (tmp_path / "file").touch()
    ended = requite("journal", "ship", str(tmp_path / "journal"), str(tmp_path / "file"))
    assert ended.code == 1
    assert "some data was not copied: cannot write" in ended.err
    assert requite("journal", "ship", str(tmp_path / "journal"), "ftp://x/y").code == 2


def test_stats_of_an_empty_journal(tmp_path):
    ended = requite("journal", "stats", str(tmp_path))
    assert ended.code == 0
    assert "no logs" in ended.out
    assert requite("journal", "stats", str(tmp_path), "--json").record == {"logs": []}


# --- export ---------------------------------------------------------------------------------------
def test_export_writes_every_event_as_json_lines(journal, tmp_path):
    to_file = requite("journal", "export", str(journal), "--to", str(tmp_path / "out.jsonl"))
    assert to_file.code == 0
    assert to_file.out.startswith("29 events, ")
    to_stdout = requite("journal", "export", str(journal), "--to", "-")
    assert to_stdout.out == (tmp_path / "out.jsonl").read_text()
    found = [json.loads(line) for line in to_stdout.out.splitlines()]
    assert found == [event.record() for event in events(journal)]


def test_export_writes_the_same_events_as_parquet(journal, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    path.write_text("an older one")
    ended = requite("journal", "export", str(journal), "--to", str(path))
    assert ended.code == 0, ended.err
    found = parquet.read_table(path).to_pylist()
    place = [(row["log"], row["segment"], row["byte_offset"]) for row in found]
    assert len(set(place)) == len(found)
    expected = {
        (event.log, event.segment, event.byte_offset): event._asdict() for event in events(journal)
    }
    assert dict(zip(place, found, strict=True)) == expected
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_export_includes_blocks_that_cannot_be_decoded(damaged, name):
    ended = requite("journal", "export", str(damaged), "--to", str(damaged / name))
    assert ended.code == ExitCode.FAILED
    assert "checksum" in ended.err
    assert ended.out.startswith("5 events, ")  # opened, two event rows, closed; and the damage
    assert (damaged / name).exists()


@pytest.mark.parametrize(
    ("to", "message"),
    [("out.csv", "must end with .parquet or .jsonl"), ("no/where.jsonl", "cannot write")],
)
def test_export_refuses_invalid_targets(journal, tmp_path, to, message):
    ended = requite("journal", "export", str(journal), "--to", str(tmp_path / to))
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def test_export_exits_without_an_error_if_stdout_is_closed(journal):
    with running("journal", "export", str(journal), "--to", "-") as export:
        assert export.line().startswith('{"schema_version": 1')
        export.process.stdout.close()
        assert export.process.wait(timeout=30) == 0
