"""Folders of journals: names of logs, refused paths, missing logs."""

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


def test_the_name_of_a_log_contains_its_role_and_writer():
    assert log_name(WriterRole.BROKER, NAME) == LOG
    found = identify(Path("journal") / LOG)
    assert (found.log, found.role, found.name) == (LOG, WriterRole.BROKER, NAME.hex())


@pytest.mark.parametrize(
    "name", ["broker-00", f"{LOG}0", f"x{LOG}", "tailor-0001020304050607", LOG.upper(), "lost"]
)
def test_other_names_are_not_logs(name):
    assert identify(Path(name)) is None


def test_logs_are_found_among_other_files(tmp_path):
    (tmp_path / LOG).mkdir()
    (tmp_path / "client-0001020304050607").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "worker-0001020304050607").touch()  # a file
    assert [log.role for log in find_logs(tmp_path)] == [WriterRole.BROKER, WriterRole.CLIENT]


def test_the_folder_of_one_log_is_a_journal(tmp_path, monkeypatch):
    (tmp_path / LOG).mkdir()
    assert [log.log for log in find_logs(tmp_path / LOG)] == [LOG]
    monkeypatch.chdir(tmp_path / LOG)
    assert [log.log for log in find_logs(".")] == [LOG]


def test_an_empty_folder_is_an_empty_journal(tmp_path):
    (tmp_path / ".hidden").touch()
    (tmp_path / "lost+found").mkdir()
    assert find_logs(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.touch(), "is a file"),
        (lambda path: (path / "photos").mkdir(parents=True), "it contains photos, and no log"),
    ],
)
def test_the_error_says_why_a_path_is_not_a_journal(tmp_path, make, message):
    path = tmp_path / "journal"
    make(path)
    with pytest.raises(ConfigurationError, match=message):
        find_logs(path)


@pytest.mark.parametrize("is_file", [True, False])
def test_nothing_is_written_to_a_path_that_is_not_a_journal(tmp_path, is_file):
    path = tmp_path / "journal"
    if is_file:
        path.write_text("mine")
    else:
        (path / "photos").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigurationError, match=r"is a file|no log"):
        Journal(path, WriterRole.BROKER, NAME).start()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        prepare(tmp_path / "file" / "journal")


def test_the_name_of_a_log_cannot_be_used_again(tmp_path):
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
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ConfigurationError):
        JournalSettings(**settings)


def test_a_name_has_eight_bytes(tmp_path):
    with pytest.raises(ConfigurationError, match="8 bytes, not 3"):
        Journal(tmp_path, WriterRole.BROKER, b"abc")


def test_removed_logs_are_reported_as_missing(tmp_path):
    assert missing_logs(tmp_path) == []
    for role in (WriterRole.BROKER, WriterRole.CLIENT):
        with Journal(tmp_path, role, NAME):
            assert missing_logs(tmp_path) == []
    (tmp_path / ".logs" / "notes.txt").touch()
    shutil.rmtree(tmp_path / LOG)
    assert [log.log for log in missing_logs(tmp_path)] == [LOG]
    assert [log.role for log in find_logs(tmp_path)] == [WriterRole.CLIENT]


def test_logs_in_a_store_are_read_concurrently_and_returned_in_order():
    both = Barrier(2)
    logs = [identify(f"{place}/{LOG}") for place in ("s3://bucket/a", "s3://bucket/b")]
    assert of_each(logs, lambda log: (both.wait(30), log.place)[1]) == [log.place for log in logs]
    assert of_each([], lambda log: log) == []
