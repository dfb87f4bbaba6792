"""Options of the Spark session: the same for every command and for spark-submit."""

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
    """Record the options of sessions instead of starting them."""
    found: list[Mapping[str, Any]] = []
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "prepare_environment", lambda: None)

    def make(builder: Any, conf: Mapping[str, str]) -> None:
        found.append({**builder._options, **conf})
        builder._options.clear()  # all sessions share one builder

    monkeypatch.setattr(session, "_made", make)
    return found


@pytest.mark.parametrize("verb", ["run", "watch", "sql", "sweep"])
def test_every_verb_that_starts_spark_has_the_same_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["spark", verb, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(option in help_text for option in OPTIONS)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_command_stops_only_a_session_that_it_started(
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
def test_the_program_for_spark_submit_has_the_same_options(words: list[str]) -> None:
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


def test_under_spark_submit_the_driver_memory_cannot_be_set(
    made: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    open_session("app", Settings.from_options("spark://head:7077", heap="3g", partitions=7))
    assert made[0]["spark.executor.memory"] == "3g"
    assert made[0]["spark.sql.shuffle.partitions"] == "7"
    with pytest.raises(ConfigurationError, match="pass --driver-memory"):
        open_session("app", Settings.from_options("local[2]", heap="3g"))


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_invalid_options_of_the_session_are_refused(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    made: list[Mapping[str, Any]],
) -> None:
    assert run_command(["spark", "sweep", *words]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "hush" not in error
    assert made == []


def test_a_heap_that_java_refuses_is_reported(tmp_path: Path) -> None:
    """Runs in a separate process, because this one already has a session."""
    words = ["spark", "sweep", "--seeds", "1", "--heap", "1k", "--to", str(tmp_path)]
    command = [str(Path(sys.executable).with_name("requite")), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Spark did not start: " in done.stderr
    assert "--heap" in done.stderr
    assert "Traceback" not in done.stderr
