"""Which folders are journals."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Barrier

import pytest

from requite.chronicle import WriterRole
from requite.errors import ConfigurationError
from requite.journal import Journal, JournalSettings
from requite.journal.folder import (
    find_logs,
    identify,
    log_name,
    missing_logs,
    of_each,
    prepare,
)

NAME = bytes(range(8))
LOG = "broker-0001020304050607"


def test_a_log_s_name_tells_who_writes_it():
    assert log_name(WriterRole.BROKER, NAME) == LOG
    found = identify(Path("journal") / LOG)
    assert (found.log, found.role, found.name) == (LOG, WriterRole.BROKER, NAME.hex())


@pytest.mark.parametrize(
    "name", ["broker-00", f"{LOG}0", f"x{LOG}", "tailor-0001020304050607", LOG.upper(), "lost"]
)
def test_other_names_are_no_logs(name):
    assert identify(Path(name)) is None


def test_logs_are_found_beside_other_things(tmp_path):
    (tmp_path / LOG).mkdir()
    (tmp_path / "client-0001020304050607").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "worker-0001020304050607").touch()  # a file
    assert [log.role for log in find_logs(tmp_path)] == [WriterRole.BROKER, WriterRole.CLIENT]


def test_one_log_s_folder_will_do(tmp_path, monkeypatch):
    (tmp_path / LOG).mkdir()
    assert [log.log for log in find_logs(tmp_path / LOG)] == [LOG]
    monkeypatch.chdir(tmp_path / LOG)
    assert [log.log for log in find_logs(".")] == [LOG]


def test_an_empty_folder_is_an_empty_journal(tmp_path):
    (tmp_path / ".hidden").touch()
    (tmp_path / "lost+found").mkdir()
    assert find_logs(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.touch(), "is a file"),
        (lambda path: (path / "photos").mkdir(parents=True), "it contains photos, and no log"),
    ],
)
def test_what_is_no_journal_is_told(tmp_path, make, told):
    path = tmp_path / "journal"
    make(path)
    with pytest.raises(ConfigurationError, match=told):
        find_logs(path)


@pytest.mark.parametrize("is_file", [True, False])
def test_nothing_is_written_into_what_is_no_journal(tmp_path, is_file):
    path = tmp_path / "journal"
    if is_file:
        path.write_text("mine")
    else:
        (path / "photos").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigurationError, match=r"is a file|no log"):
        Journal(path, WriterRole.BROKER, NAME).start()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_below_a_file_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        prepare(tmp_path / "file" / "journal")


def test_a_name_is_used_once(tmp_path):
    with Journal(tmp_path, WriterRole.BROKER, NAME):
        pass
    with pytest.raises(ConfigurationError, match="needs a new name"):
        Journal(tmp_path, WriterRole.BROKER, NAME).start()


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_size_bytes": 4096},
        {"flush_every_s": 0},
        {"sync_every_s": -1},
        {"close_timeout_s": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigurationError):
        JournalSettings(**settings)


def test_a_name_has_eight_bytes(tmp_path):
    with pytest.raises(ConfigurationError, match="8 bytes, not 3"):
        Journal(tmp_path, WriterRole.BROKER, b"abc")


def test_logs_that_began_and_are_gone_are_missed(tmp_path):
    assert missing_logs(tmp_path) == []
    for role in (WriterRole.BROKER, WriterRole.CLIENT):
        with Journal(tmp_path, role, NAME):
            assert missing_logs(tmp_path) == []
    (tmp_path / ".logs" / "notes.txt").touch()
    shutil.rmtree(tmp_path / LOG)
    assert [log.log for log in missing_logs(tmp_path)] == [LOG]
    assert [log.role for log in find_logs(tmp_path)] == [WriterRole.CLIENT]


def test_logs_in_a_store_are_looked_at_several_at_once_and_told_in_order():
    both = Barrier(2)
    logs = [identify(f"{place}/{LOG}") for place in ("s3://bucket/a", "s3://bucket/b")]
    assert of_each(logs, lambda log: (both.wait(30), log.place)[1]) == [log.place for log in logs]
    assert of_each([], lambda log: log) == []
