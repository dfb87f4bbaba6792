"""`requite demo --watch`: a demo without end, and the page of its broker."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.command import requite, running
from tests.metrics.scrape import get
from tests.support.live import eventually

from requite.cli.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AIRPORTS = "/services/airports.nearest"


def test_it_goes_on_until_it_is_interrupted(tmp_path: Path) -> None:
    options = ("--workers", "2", "--clients", "1", "--keep", str(tmp_path / "kept"), "--json")
    with running("demo", "--watch", *options) as demo:
        said = demo.line()
        assert said.startswith("page at http://127.0.0.1:"), demo.end()
        url = f"http://{urlsplit(said.removeprefix('page at ')).netloc}"
        assert "Ctrl-C" in demo.line()
        eventually(lambda: "2 workers" in get(url, AIRPORTS).text, "the page shows the workers")
        assert "killed (SIGKILL)" in demo.error_line()
        eventually(lambda: "1 worker," in get(url, AIRPORTS).text, "a worker is missing")
        assert "restarted" in demo.error_line()
        eventually(lambda: "2 workers" in get(url, AIRPORTS).text, "it has come back")
        eventually(lambda: "RemoteFailure" in get(url, "/requests?failed=1").text, "a failure")
        demo.send(signal.SIGINT)
        code, out, _ = demo.end()
    counts = json.loads(out.splitlines()[-1])
    assert (code, counts["failed"]) == (ExitCode.OK, 0)
    assert counts["answered"] > 0
    assert counts["worker_kills"] >= 1
    assert [*(tmp_path / "kept" / "journal").iterdir()]


def test_other_patterns_cannot_be_watched() -> None:
    ended = requite("demo", "--watch", "--pattern", "titanic")
    assert ended.code == ExitCode.USAGE
    assert "only the pattern majordomo has a page" in ended.err


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise ModuleNotFoundError(name='jinja2')\n")
    ended = requite("demo", "--watch", env={"PYTHONPATH": str(tmp_path)})
    assert ended.code == ExitCode.USAGE
    assert "--watch requires the package jinja2" in ended.err
