"""Durable requests on the command line: `call --submit`, `result`, and the commands `titanic`."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.cli.command import (
    Running,
    requite,
    running,
    running_broker,
    running_worker,
    write_users,
)
from tests.cli.conftest import Refusal
from tests.support.live import eventually

from requite.cli import main
from requite.cli.exit_codes import ExitCode
from requite.engine import Store
from requite.protocols.titanic.records import encode_submitted
from requite.storage import Log
from requite.titanic import TitanicSettings

pytestmark = pytest.mark.e2e

TICKET = re.compile(r"[0-9A-F]{32}\n")
NEVER = "0" * 32
UNREACHABLE = "mdp://127.0.0.1:1"


Run = Callable[..., Any]


class InProcessRun:
    """The result of a run of the command in this process, in a tenth of a child process's time."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.stdout = out
        self.out = out.decode()
        self.err = err.decode()

    @property
    def record(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        record: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return record


@pytest.fixture
def here(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """A function that runs the command in this process."""
    root, monitored = logging.getLogger(), logging.getLogger("requite")
    before = root.handlers[:], root.level, monitored.level
    collected = gc.get_threshold()
    monkeypatch.delenv("REQUITE_CREDENTIALS_FILE", raising=False)

    def run(*words: str) -> InProcessRun:
        code = main(words)
        return InProcessRun(code, *capsysbinary.readouterr())

    yield run
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    monitored.setLevel(before[2])
    gc.set_threshold(*collected)
    gc.unfreeze()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker with a Titanic that poisons requests after one attempt.

    A worker serves `echo`, `fail` and the typed service `airports`.
    """
    folder = str(tmp_path_factory.mktemp("kept") / "requests")
    with running_broker("--titanic", folder, "--titanic-attempts", "1") as (_broker, url):
        targets = (
            "requite.examples:echo",
            "requite.examples:fail",
            "requite.examples.typed:airports",
        )
        with running_worker(*targets, "--connect", url):
            yield url


def submit(here: Run, url: str, service: str, body: str, *options: str) -> str:
    ended = here("call", f"{url}/{service}", body, "--submit", "--timeout", "20", *options)
    assert ended.code == 0, ended.err
    assert TICKET.fullmatch(ended.out)
    return ended.out.strip()


def test_a_request_is_submitted_and_its_result_fetched(here, kept):
    ticket = submit(here, kept, "echo", "hello, later")
    ended = here("result", kept, ticket)
    assert (ended.code, ended.stdout, ended.err) == (0, b"hello, later", "")
    record = here("result", f"{kept}/echo", ticket.lower(), "--json", "--forget").record
    assert (record["status"], record["body"]) == ("OK", "hello, later")
    ended = here("result", kept, ticket, "--json")
    assert (ended.code, ended.record["status"]) == (ExitCode.FAILED, "UNKNOWN_TICKET")


def test_the_ticket_as_json(here, kept):
    record = here("call", f"{kept}/echo", "x", "--submit", "--json").record
    assert record["status"] == "OK"
    assert TICKET.fullmatch(record["ticket"] + "\n")


def test_a_key_names_a_request(here, kept):
    assert submit(here, kept, "echo", "a", "--key", "k") == submit(
        here, kept, "echo", "a", "--key", "k"
    )


def test_a_request_without_a_reply_in_time_stays_stored(here, kept):
    ticket = submit(here, kept, "nobody", "x")
    ended = here("result", kept, ticket, "--timeout", "2")
    assert (ended.code, ended.out) == (ExitCode.TIMEOUT, "")
    assert "it is stored" in ended.err
    assert here("titanic", "show", kept, ticket, "--json").record["state"] == "waiting"


def test_a_failed_request_is_listed_with_the_reason_and_retried(here, kept):
    ticket = submit(here, kept, "fail", "out of stock")
    ended = here("result", kept, ticket, "--timeout", "20")
    assert ended.code == ExitCode.LOST
    assert "out of stock" in ended.err
    listed = here("titanic", "ls", kept, "--state", "poisoned").out
    assert f"{ticket}  poisoned  fail" in listed
    assert "out of stock" in listed
    assert here("titanic", "retry", kept, ticket).code == 0
    eventually(
        lambda: here("titanic", "ls", kept, "--state", "poisoned").out.count(ticket),
        "it is poisoned again",
    )
    assert here("titanic", "forget", kept, ticket).code == 0
    assert ticket not in here("titanic", "ls", kept).out


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ('{"code": "???", "count": 1}', "FAILED", "UnknownAirport: "),
        ('{"code": "FRA", "count": "x"}', "BAD_REQUEST", "$.count: expected int, got str"),
    ],
)
def test_an_answer_of_a_typed_service_is_the_result(here, kept, body, status, said):
    ticket = submit(here, kept, "airports.nearest", body)
    ended = here("result", kept, ticket, "--timeout", "20", "--json")
    assert (ended.code, ended.record["status"]) == (ExitCode.FAILED, status)
    assert ended.record["message"].startswith(said)
    assert re.search(
        rf"{ticket}  answered .* B -> .* B \(negative\)", here("titanic", "ls", kept).out
    )
    assert here("titanic", "retry", kept, ticket).code != 0
    assert here("titanic", "show", kept, ticket, "--json").record["negative"] is True


def test_the_list_has_an_object_per_line_and_a_limit(here, kept):
    tickets = [submit(here, kept, "echo", str(number)) for number in range(3)]
    rows = [json.loads(line) for line in here("titanic", "ls", kept, "--json").out.splitlines()]
    assert [row["ticket"] for row in rows if row["ticket"] in tickets] == tickets
    assert len(here("titanic", "ls", kept, "--limit", "2").out.splitlines()) == 2


def test_one_request_is_shown_with_its_reply(here, kept):
    ticket = submit(here, kept, "echo", "grüße")
    here("result", kept, ticket)
    shown = here("titanic", "show", kept, ticket).out
    assert re.search(r"^state +answered$", shown, re.MULTILINE)
    assert re.search(r"^request +grüße$", shown, re.MULTILINE)
    assert re.search(r"^reply +grüße$", shown, re.MULTILINE)
    record = here("titanic", "show", kept, ticket, "--json").record
    assert record["request"] == record["reply"] == [{"body": "grüße", "encoding": "utf-8"}]


def test_stats_count_requests_and_disk_bytes(here, kept):
    record = here("titanic", "stats", kept, "--json").record
    assert record["requests"] >= 0
    assert record["store"]["disk_bytes"] > 0
    assert re.search(r"^store\.disk_bytes +[\d,]+$", here("titanic", "stats", kept).out, re.M)


@pytest.mark.parametrize("verb", ["show", "retry"])
def test_an_unknown_ticket_is_an_error(here, kept, verb):
    ended = here("titanic", verb, kept, NEVER)
    assert (ended.code, ended.out) == (ExitCode.FAILED, "")


def test_promoting_a_primary_does_nothing(here, kept):
    assert here("titanic", "promote", kept).code == 0
    assert here("titanic", "stats", kept, "--json").record["replica"] is False


@pytest.mark.parametrize("ticket", ["", "abc", NEVER + "0", "../../../../../../etc/passwd"])
@pytest.mark.parametrize("verb", [("result",), ("titanic", "show"), ("titanic", "forget")])
def test_malformed_tickets_are_refused(refusal: Refusal, verb, ticket):
    assert "32 hex digits" in refusal(*verb, UNREACHABLE, ticket)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("call", f"{UNREACHABLE}/echo", "x", "--submit", "--stream"),
            "--submit cannot be combined with",
        ),
        (
            ("call", f"{UNREACHABLE}/echo", "x", "--submit", "--once"),
            "--submit cannot be combined with",
        ),
        (("call", "sp+tcp://127.0.0.1:1", "x", "--key", "k"), "does not carry idempotency keys"),
        (("call", "sp+tcp://127.0.0.1:1", "x", "--submit"), "durable requests need a broker"),
        (("titanic", "--broker", UNREACHABLE), "--dir DIR"),
        (("titanic", "--broker", UNREACHABLE, "--dir", "d", "--memory"), "use one of them"),
        (("titanic", "--broker", f"{UNREACHABLE}/echo", "--memory"), "names"),
        (("titanic", "--broker", "sp+tcp://127.0.0.1:1", "--memory"), "MDP"),
        (("titanic", "--broker", UNREACHABLE, "--memory", "--disk-max", "much"), "512m"),
        (
            ("titanic", "--broker", UNREACHABLE, "--memory", "--disk-max", "1k"),
            "--disk-max must be at least 5m",
        ),
        (
            ("broker", "--titanic", "d", "--titanic-disk-max", "1k"),
            "--titanic-disk-max must be at least 5m",
        ),
        (("broker", "--titanic", "d", "--titanic-disk-max", "-1"), "--titanic-disk-max is a size"),
        (
            ("titanic", "--broker", UNREACHABLE, "--memory", "--replica-mode", "sync"),
            "give --replica URL",
        ),
        (
            ("broker", "--titanic", "d", "--titanic-replica-mode", "sync"),
            "give --titanic-replica URL",
        ),
        (
            ("titanic", "--broker", UNREACHABLE, "--memory", "--standby", "--replica", UNREACHABLE),
            "give --standby or --replica",
        ),
        (("titanic", "--broker", UNREACHABLE, "--memory", "--replica", "nonsense"), "nonsense"),
        (("broker", "--titanic", "d", "--titanic-memory"), "use one of them"),
        (("broker", "--titanic-attempts", "3"), "give --titanic DIR"),
    ],
)
def test_invalid_arguments_are_refused(refusal: Refusal, words, message):
    assert message in refusal(*words)


# --- in a process of its own ----------------------------------------------------------------------
def await_start(titanic: Running, url: str) -> None:
    assert titanic.line() == f"serving titanic for {url}"


def test_a_separate_titanic_stores_requests_and_drains(here, tmp_path):
    with running_broker() as (_broker, url):
        options = ("titanic", "--broker", url, "--dir", str(tmp_path / "kept"))
        with running(*options) as first:
            await_start(first, url)
            ticket = submit(here, url, "echo", "x")
            first.send(signal.SIGTERM)
            assert first.end() == (0, "", "")
        with running(*options) as second, running_worker("requite.examples:echo", "--connect", url):
            await_start(second, url)
            assert here("result", url, ticket, "--timeout", "20").stdout == b"x"


def test_in_memory_it_warns_that_requests_are_lost():
    with running("titanic", "--broker", UNREACHABLE, "--memory") as titanic:
        await_start(titanic, UNREACHABLE)
        titanic.send(signal.SIGTERM)
        code, _, message = titanic.end()
    assert code == 0
    assert "do not survive this process" in message


def test_a_folder_that_cannot_be_written_is_refused(here, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # root can write anywhere else
        folder = Path("/proc/kept")
    ended = here("titanic", "--broker", UNREACHABLE, "--dir", str(folder))
    assert ended.code == ExitCode.USAGE
    assert str(folder) in ended.err


def test_a_folder_with_other_files_is_refused(here, tmp_path):
    (tmp_path / "letter").write_text("dear")
    ended = here("titanic", "--broker", UNREACHABLE, "--dir", str(tmp_path))
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "contains other files" in ended.err


def test_a_file_in_place_of_the_folder_is_refused(here, tmp_path):
    (tmp_path / "kept").write_text("dear")
    ended = here("broker", "--bind", "tcp://127.0.0.1:0", "--titanic", str(tmp_path / "kept"))
    assert ended.code == ExitCode.USAGE
    assert str(tmp_path / "kept") in ended.err


def test_a_log_of_a_newer_version_is_refused_and_unchanged(here, tmp_path: Path):
    folder = tmp_path / "kept"
    with Log.open(folder, purpose=b"TITN") as log:
        log.commit([b"x"])
    [segment] = folder.glob("*.seg")
    newer = bytearray(segment.read_bytes())
    newer[8] = 2
    newer[60:64] = crc32(newer[:60]).to_bytes(4, "little")
    segment.write_bytes(newer)
    ended = here("titanic", "--broker", UNREACHABLE, "--dir", str(folder))
    assert ended.code == ExitCode.USAGE
    assert segment.read_bytes() == newer


def test_without_a_titanic_the_service_is_unavailable(here):
    with running_broker() as (_broker, url):
        for words in (
            ("result", url, NEVER, "--timeout", "1.5"),
            ("call", f"{url}/echo", "x", "--submit", "--timeout", "1.5"),
        ):
            ended = here(*words)
            assert (ended.code, ended.out) == (ExitCode.UNAVAILABLE, "")
            assert "no worker serves 'titanic.re" in ended.err


def test_a_broker_with_a_titanic_drains_and_restores_requests(here, tmp_path):
    with running_broker("--titanic", str(tmp_path / "kept")) as (broker, url):
        ticket = submit(here, url, "echo", "x")
        broker.send(signal.SIGTERM)
        assert broker.end() == (0, "", "")
    with running_broker("--titanic", str(tmp_path / "kept")) as (_broker, url):
        assert here("titanic", "show", url, ticket, "--json").record["state"] == "waiting"


def test_a_request_that_is_too_large_is_refused(here, kept, tmp_path):
    ended = here("call", f"{kept}/echo", "x" * (17 << 20), "--submit")
    assert ended.code == ExitCode.USAGE
    assert "a retry would be refused" in ended.err


# --- backup ---------------------------------------------------------------------------------------
def test_a_backup_has_what_is_stored(tmp_path: Path) -> None:
    kept, copy = str(tmp_path / "kept"), str(tmp_path / "copy")
    with running_broker("--titanic", kept) as (_broker, url):
        ticket = requite("call", "--submit", f"{url}/echo", "hello").out.strip()
        made = requite("titanic", "backup", kept, copy)
        assert (made.code, made.err) == (0, "")
        assert made.out.startswith(f"{copy}: 1 record, ")
        again = requite("titanic", "backup", kept, copy, "--json")
        assert again.code == ExitCode.USAGE
        assert again.err == f"requite: {copy} exists. Back up to a new folder\n"
        as_json = requite("titanic", "backup", kept, f"{copy}2", "--json")
        assert as_json.record["records"] == 1
    with running_broker("--titanic", copy) as (_broker, url):
        assert f"{ticket} " in requite("titanic", "ls", url).out


# --- users ----------------------------------------------------------------------------------------
def test_the_requests_of_one_user_are_erased(here, tmp_path):
    users = write_users(tmp_path / "users", "ann:secret\neve:terces\n")
    folder = tmp_path / "kept"
    options = ("--credentials-file", str(users), "--titanic", str(folder))
    with running_broker(*options) as (_broker, url):
        ann, eve = (url.replace("mdp://", f"mdp://{who}@") for who in ("ann:secret", "eve:terces"))
        of_ann = submit(here, ann, "echo", "a body of ann")
        of_eve = submit(here, eve, "echo", "a body of eve")
        ended = here("result", eve, of_ann, "--timeout", "20")
        assert (ended.code, "no request is stored under the ticket" in ended.err) == (1, True)
        lines = here("titanic", "ls", ann).out.splitlines()
        assert [line.split()[0] for line in lines if "of plain:ann" in line] == [of_ann]
        ended = here("titanic", "erase", ann, "--owner", "plain:ann")
        assert ended.out.splitlines()[0] == "erased 1 request of plain:ann"

        def is_erased() -> bool:
            stats = json.loads(here("titanic", "stats", ann, "--json").out)
            return stats["store"]["rewriting"] == 0

        assert eventually(is_erased, "the files are rewritten")
        files = b"".join(file.read_bytes() for file in folder.iterdir())
        assert (b"a body of ann" in files, b"a body of eve" in files) == (False, True)
        assert [line.split()[0] for line in here("titanic", "ls", ann).out.splitlines()] == [of_eve]


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--titanic-owner-requests-max", "1", "eve has reached the maximum of 1 stored requests"),
        (
            "--titanic-owner-bytes-max",
            "1k",
            "the stored requests of plain:eve take 1[0-9]+ of at most 1024 bytes",
        ),
    ],
)
def test_one_user_cannot_fill_the_store(here, tmp_path, option, value, why):
    users = write_users(tmp_path / "users", "ann:secret\neve:terces\n")
    options = ("--credentials-file", str(users), "--titanic-memory", option, value)
    with running_broker(*options) as (_broker, url):
        ann, eve = (url.replace("mdp://", f"mdp://{who}@") for who in ("ann:secret", "eve:terces"))
        submit(here, eve, "echo", "x" * 1000)
        ended = here("call", f"{eve}/echo", "x", "--submit", "--timeout", "1")
        assert ended.code == ExitCode.UNAVAILABLE
        assert re.search(why, ended.err)
        submit(here, ann, "echo", "x")


# --- keys -----------------------------------------------------------------------------------------
def test_stored_requests_are_encrypted(here, tmp_path):
    folder, keys = tmp_path / "kept", write_users(tmp_path / "keys", "1" * 64)
    options = ("--titanic", str(folder), "--titanic-key-file", str(keys))
    for _ in range(2):
        with running_broker(*options) as (_broker, url):
            submit(here, url, "echo", "a secret")
            lines = here("titanic", "ls", url).out.splitlines()
    assert len(lines) == 2
    assert b"a secret" not in b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (None, 0o600, "the log is encrypted; give its key file (key_file, --titanic-key-file)"),
        ("2" * 64, 0o600, "the log is encrypted with a key that is not in the key file"),
        ("2" * 63, 0o600, "is not a key: 64 hex digits"),
        ("1" * 64, 0o644, "other users can read the key file"),
    ],
)
def test_a_wrong_or_missing_key_is_refused(here, tmp_path, text, mode, why):
    folder, keys = tmp_path / "kept", write_users(tmp_path / "keys", "1" * 64)
    TitanicSettings(folder, key_file=keys).open().close()
    store = TitanicSettings(folder, key_file=keys).open()
    store.submit(Store("ticket", [encode_submitted(bytes(16), 1, b"echo", b"", [b"hi"])]))
    store.work()
    store.close()
    options = ["broker", "--bind", "tcp://127.0.0.1:0", "--titanic", str(folder)]
    if text is not None:
        keys.write_text(text)
        keys.chmod(mode)
        options += ["--titanic-key-file", str(keys)]
    ended = here(*options)
    assert ended.code == ExitCode.USAGE
    assert why in ended.err
    assert (text or "1" * 64) not in ended.err
