"""`--journal-retain`, `--journal-ship` and `JournalSettings`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.cli.command import requite, running_broker

from requite.broker import Broker
from requite.chronicle import WriterRole
from requite.cli.exit_codes import ExitCode
from requite.cli.retention import journal_option, limits
from requite.errors import ConfigurationError
from requite.journal import JournalSettings
from requite.journal.folder import find_logs
from requite.journal.reader import events
from requite.journal.stats import stats
from requite.shell.journaling import journal_in


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1g", (1 << 30, None)),
        ("1.5M", (3 << 19, None)),
        ("7d", (None, 7 * 86_400)),
        ("12h", (None, 43_200)),
        ("64m, 2w", (64 << 20, 14 * 86_400)),
    ],
)
def test_limits_of_size_and_age(text: str, limit: tuple[int | None, float | None]) -> None:
    assert limits(text) == limit


@pytest.mark.parametrize("text", ["", "1", "g", "-1g", "1y", "1g,", "1g 7d"])
def test_malformed_limits_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a limit such as 1g, 7d or 1g,7d"):
        limits(text)


def test_a_journal_has_the_settings_of_the_option(tmp_path: Path) -> None:
    settings = JournalSettings(retain_bytes=1 << 30, retain_s=3600.0)
    assert journal_option(tmp_path, "1g,1h", None) == (tmp_path, settings)
    assert journal_option(tmp_path, None, None) == tmp_path
    journal = journal_in((tmp_path, settings), WriterRole.BROKER, bytes(8))
    assert journal is not None
    assert (journal.path.parent, journal.settings) == (tmp_path, settings)


def test_a_broker_accepts_settings_for_its_journal(tmp_path: Path) -> None:
    async def serve() -> None:
        async with Broker("tcp://127.0.0.1:0", journal=(tmp_path, JournalSettings(retain_s=60))):
            assert [log.role for log in find_logs(tmp_path)] == [WriterRole.BROKER]

    asyncio.run(serve())


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--journal-retain", "1g"), "--journal"),
        (("--journal", "x", "--journal-retain", "1"), "1g"),
        (("--journal-ship", "copy"), "requires --journal DIR"),
        (("--journal", "x", "--journal-ship", "ftp://x/y"), "s3://"),
    ],
)
def test_the_command_refuses_invalid_options(words: tuple[str, ...], message: str) -> None:
    ended = requite("broker", "--bind", "tcp://127.0.0.1:0", *words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err


@pytest.mark.e2e
def test_the_command_ships_its_log(tmp_path: Path) -> None:
    source, target = tmp_path / "journal", tmp_path / "copy"
    with running_broker("--journal", str(source), "--journal-ship", str(target)) as (broker, _):
        broker.send(signal.SIGTERM)
        assert broker.end()[0] == 0
    assert [*events(target)] == [*events(source)]
    assert {log.state for log in stats(target)} == {"closed"}


@pytest.mark.e2e
def test_the_command_writes_a_journal_with_limits(tmp_path: Path) -> None:
    options = ("--journal", str(tmp_path), "--journal-retain", "1g,7d")
    with running_broker(*options):
        assert [log.role for log in find_logs(tmp_path)] == [WriterRole.BROKER]
