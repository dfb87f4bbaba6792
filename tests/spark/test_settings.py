"""Where Spark runs, and how: one way for every verb, and for what spark-submit runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from requite.cli.app import run as run_command
from requite.cli.spark.options import SparkOptions
from requite.errors import ConfigurationError
from requite.spark import __main__ as submitted
from requite.spark import session
from requite.spark.session import Settings, open_session, sized

OPTIONS = ("--master", "--conf", "--heap", "--partitions")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """What sessions would have been made with, instead of making them."""
    found: list[Mapping[str, Any]] = []
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "prepare_environment", lambda: None)

    def make(builder: Any, conf: Mapping[str, str]) -> None:
        found.append({**builder._options, **conf})
        builder._options.clear()  # there is one builder for all

    monkeypatch.setattr(session, "_made", make)
    return found


@pytest.mark.parametrize("verb", ["run", "watch", "sql", "sweep"])
def test_every_verb_that_starts_spark_has_the_same_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["spark", verb, "--help"]) == 0
    told = capsys.readouterr().out
    assert all(option in told for option in OPTIONS)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_command_stops_the_session_that_it_has_started_and_no_other(
    is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Mock()
    monkeypatch.setattr(session, "is_running", lambda: is_running)
    monkeypatch.setattr(session, "open_session", lambda *_args: started)
    with suppress(ConfigurationError), SparkOptions().session("app") as given:
        assert given is started
        started.stop.assert_not_called()
        raise ConfigurationError("it was no query")
    assert started.stop.call_count == (0 if is_running else 1)


@pytest.mark.parametrize("words", [["run", "--journal", "j", "--lake", "l"], ["sweep"]])
def test_what_spark_submit_runs_has_them_too(words: list[str]) -> None:
    more = ["--master", "local[3]", "--conf", "spark.a=b=c", "--heap", "3g", "--partitions", "5"]
    given = submitted._parser().parse_args([*words, *more])
    settings = Settings.from_options(given.master, given.conf, given.heap, given.partitions)
    assert settings == Settings("local[3]", {"spark.a": "b=c"}, "3g", 5)


def test_a_local_session_has_defaults_by_its_threads_and_options_win(
    made: list[Mapping[str, Any]],
) -> None:
    open_session("app", Settings.from_options("local[16]"))
    open_session(
        "app", Settings.from_options("local", ["spark.ui.enabled=true"], "1g", 9), {"spark.a": "b"}
    )
    open_session("app", Settings.from_options("spark://head:7077", heap="3g"))
    many, one, cluster = made
    assert (many["spark.driver.memory"], many["spark.sql.shuffle.partitions"]) == ("4096m", "16")
    assert (many["spark.master"], one["spark.master"]) == ("local[16]", "local[1]")
    assert (one["spark.driver.memory"], one["spark.sql.shuffle.partitions"]) == ("1g", "9")
    assert (one["spark.ui.enabled"], one["spark.a"]) == ("true", "b")
    assert (cluster["spark.master"], cluster["spark.executor.memory"]) == (
        "spark://head:7077",
        "3g",
    )
    assert "spark.driver.memory" not in cluster
    assert sized(2) == {"spark.driver.memory": "2048m", "spark.sql.shuffle.partitions": "4"}


def test_under_spark_submit_its_options_stand(
    made: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    open_session("app", Settings.from_options("spark://head:7077", heap="3g", partitions=7))
    assert made[0]["spark.executor.memory"] == "3g"
    assert made[0]["spark.sql.shuffle.partitions"] == "7"
    with pytest.raises(ConfigurationError, match="pass --driver-memory"):
        open_session("app", Settings.from_options("local[2]", heap="3g"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--heap", "much"], "write it like 4g"),
        (["--partitions", "0"], "Must be > 0"),
        (["--master", "local[two]"], "write local[2]"),
        (["--master", "head:7077"], "write local[2], spark://HOST:PORT"),
        (["--conf", "spark.x"], "write it like spark.NAME=VALUE"),
        (["--conf", "x=y"], "write it like spark.NAME=VALUE"),
        (
            ["--conf", "spark.executorEnv.AWS_SECRET_ACCESS_KEY=hush"],
            "other users can read a command",
        ),
        (["--master", "sc://head", "--heap", "2g"], "no effect on a Connect server"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    made: list[Mapping[str, Any]],
) -> None:
    assert run_command(["spark", "sweep", *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert told in said
    assert "hush" not in said
    assert made == []


def test_what_java_refuses_is_told(tmp_path: Path) -> None:
    """A heap that Java cannot have, in a process of its own: this one has a session already."""
    words = ["spark", "sweep", "--seeds", "1", "--heap", "1k", "--to", str(tmp_path)]
    command = [str(Path(sys.executable).with_name("requite")), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Spark did not start: " in done.stderr
    assert "--heap" in done.stderr
    assert "Traceback" not in done.stderr
