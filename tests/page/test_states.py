"""States of a broker on its page: requests at workers, stored requests, pairs, and denials."""

from __future__ import annotations

import re
import signal
from html import unescape
from math import inf
from pathlib import Path

import pytest
from tests.cli.command import requite, running
from tests.page.rig import call, get, requests_in, serving, shown
from tests.page.test_figures import snapshot, traffic
from tests.support.live import eventually

from requite.page.curves import Curves
from requite.page.history import History
from requite.page.home import Home, HomeView
from requite.page.readings import BrokerSnapshot

pytestmark = pytest.mark.e2e


def test_a_worker_shows_the_requests_that_it_holds(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with (
        shown(journal=journal) as broker,
        serving(broker, "slow", journal=journal),
        running("call", f"{broker.url}/slow", "60", "--timeout", "60"),
    ):
        eventually(lambda: "/requests/" in workers_of(get(broker, "/services/slow").text), "a hold")
        [request_id] = requests_in(journal, "slow")
        assert f'href="/requests/{request_id}"' in get(broker, "/services/slow").text
        story = get(broker, f"/requests/{request_id}")
        assert "IN_FLIGHT: accepted, and not ended yet; it still has time" in story.text
        assert 'class="verdict good"' in story.text


def workers_of(text: str) -> str:
    return text.partition('<div id="workers"')[2]


def test_a_request_that_fails_as_it_should_is_not_green(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with shown(journal=journal) as broker, serving(broker, "fail"):
        call(broker, "fail", "x")
        [request_id] = requests_in(journal, "fail")
        assert 'class="verdict note"' in get(broker, f"/requests/{request_id}").text


def test_the_page_and_the_command_tell_the_same_story(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with (
        shown(journal=journal) as broker,
        serving(broker, "slow", journal=journal) as worker,
        serving(broker, "slow", "fail", journal=journal),
        running("call", f"{broker.url}/slow", "2", "--journal", str(journal)) as calling,
    ):
        requests_in(journal, "slow")
        worker.send(signal.SIGKILL)
        assert calling.end()[0] == 0
        call(broker, "fail", "<no> & never", "--journal", str(journal))
        ids = [*requests_in(journal, "slow"), *requests_in(journal, "fail")]
        assert len(ids) == 2
        for request_id in ids:
            text = unescape(get(broker, f"/requests/{request_id}").text)
            told = requite("why", str(journal), request_id, "--json").record
            assert len(told["steps"]) >= 6
            for said in (told["meaning"], *told["sentences"], *(e["what"] for e in told["steps"])):
                assert said in text, said
        listed = requite("why", str(journal), "--failed", "--json").record["failures"]
        page = unescape(get(broker, "/requests?failed=1").text)
        assert [each["request_id"] for each in listed] == re.findall(r"<code>(\w{32})</code>", page)


def test_the_page_and_the_metrics_have_the_same_numbers() -> None:
    with shown() as broker, serving(broker, "echo"):
        for _ in range(3):
            call(broker, "echo", "x")
        assert ">3<small> accepted, </small>3<small> ok" in get(broker, "/services/echo").text
        metrics = get(broker, "/metrics").text
        assert 'requite_requests_accepted_total{service="echo"} 3.0' in metrics


def test_stored_requests_are_counted(tmp_path: Path) -> None:
    with shown("--titanic", str(tmp_path / "stored")) as broker:
        submitted = requite("call", "--submit", f"{broker.url}/absent", "x")
        assert submitted.code == 0, submitted.err
        eventually(
            lambda: "<dt>Titanic</dt>\n<dd>1<small> waiting" in get(broker, "/").text, "it waits"
        )


def test_a_broker_that_is_drained_says_so() -> None:
    with (
        shown() as broker,
        serving(broker, "slow"),
        running("call", f"{broker.url}/slow", "60", "--timeout", "60"),
    ):
        eventually(lambda: "/requests/" in workers_of(get(broker, "/services/slow").text), "a hold")
        broker.process.send(signal.SIGTERM)
        eventually(lambda: "the broker is being drained" in get(broker, "/").text, "it drains")


def state_of(seen: BrokerSnapshot) -> str:
    return Home(Curves(History())).parts(seen, HomeView())["state"]


def with_now(**changes: object) -> BrokerSnapshot:
    """Return a snapshot of a broker that differs in some respects."""
    seen = snapshot(10.0, traffic("a", 1))
    figures = seen.figures
    return seen._replace(figures=figures._replace(now=figures.now._replace(**changes)))  # type: ignore[arg-type]


def test_a_pair_is_shown() -> None:
    pair = {
        "role": "backup",
        "state": "passive",
        "epoch": 3,
        "serves": False,
        "peer": "active",
        "peer_is_silent": False,
        "heard_s_ago": 0.1,
    }
    state = state_of(with_now(pair=pair))
    assert "stands by" in state
    assert "backup, passive" in state
    assert "the other one: active" in state
    silent = state_of(with_now(pair={**pair, "serves": True, "peer_is_silent": True}))
    assert "serves" in silent
    assert "the other one is silent" in silent


def test_denials_and_refusals_are_shown() -> None:
    assert "12<small> since the start" in state_of(with_now(denied={"call": 10, "serve": 2}))
    seen = snapshot(10.0)
    figures = seen.figures._replace(denied={"call": 2.5}, refused={"overloaded": 40.0})
    state = state_of(seen._replace(figures=figures))
    assert "2.5</span><small> /s call" in state
    assert "40</span><small> /s overloaded" in state


def test_services_of_every_state_are_shown() -> None:
    seen = snapshot(
        10.0,
        traffic("paused", 1)._replace(paused=1, draining=2, blocked=3),
        traffic("unserved", 2)._replace(idle=0, unserved=4, queued=4, oldest_at=7.5),
        traffic("calm", 3)._replace(oldest_at=inf),
    )
    rows = Home(Curves(History())).parts(seen, HomeView())["services"]
    for text in ("paused</span>", "2 draining", "3 blocked", "no worker", "2.5\xa0s"):
        assert text in rows


def test_the_page_has_more_names_than_the_metrics() -> None:
    with shown("--metrics-services", "1") as broker, serving(broker, "echo", "fail"):

        def look() -> bool:
            text = get(broker, "/").text
            return "echo</bdi>" in text and "fail</bdi>" in text

        eventually(look, "the page has both")
