"""`requite why`, the page and the audit agree on the requests of a demo with kills."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from starlette.requests import Request
from tests.cli.command import requite
from tests.spark.events import collect

from requite.cli.show.demos import DEMOS
from requite.cli.show.options import Scale
from requite.cli.show.run import run_demo
from requite.journal.reader import events
from requite.journal.search import search
from requite.page.requests import Requests
from requite.spark import runner
from requite.spark.audit import Summary, summarise
from requite.spark.lake import Lake
from requite.story import words
from requite.story.searcher import Searcher
from requite.story.telling import Story, tell
from requite.story.vocabulary import Verdict

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

# As many faults as in the usual demo, and a twentieth of the requests.
SCALE = Scale(requests=1400, workers=3, worker_kills=3, broker_kills=1, stops=1, no_audit=True)
# Requests that ended as they should, for which the page is compared; all others are.
USUAL_SHOWN = 30


class Judged(NamedTuple):
    """A journal, its lake, and the summary of the audit."""

    journal: Path
    lake: Lake
    audit: Summary

    def lake_rows(self, table: str) -> list[dict[str, Any]]:
        return collect(self.lake.table(table))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of a demo, all of whose replies were right."""
    journal = tmp_path_factory.mktemp("demo") / "journal"
    description = DEMOS["majordomo"]
    verdict = run_demo(description.run(description, SCALE, journal))
    assert verdict.is_good
    assert verdict.worker_kills == 3
    return journal


def audited(spark: SparkSession, journal: Path) -> Judged:
    lake = journal.with_name(f"{journal.name}-lake")
    summary = runner.run(spark, journal, lake)
    return Judged(journal, Lake.at(spark, lake), summary.audit)


@pytest.fixture(scope="module", params=["all", "brokers"])
def judged(request: pytest.FixtureRequest, spark: SparkSession, demo: Path) -> Judged:
    """Journals of all; and without those of clients, so that killed brokers lose requests."""
    if request.param == "all":
        return audited(spark, demo)
    part = demo.with_name("brokers")
    shutil.copytree(demo, part, ignore=shutil.ignore_patterns("client-*", "lock", ".index"))
    return audited(spark, part)


def stories(journal: Path) -> dict[str, Story]:
    ids = {event.request_id for event in events(journal) if event.request_id}
    findings = search([journal], [bytes.fromhex(each) for each in ids])
    told = {each: tell(findings, each) for each in ids}
    return {each: story for each, story in told.items() if story is not None}


def test_every_request_has_the_same_verdict_contradictions_and_outcome(judged: Judged) -> None:
    told = stories(judged.journal)
    verdicts = {row["request_id"]: row["verdict"] for row in judged.lake_rows("audit_verdicts")}
    assert {key: story.verdict for key, story in told.items() if story.verdict} == verdicts
    counts = Counter(story.verdict.value for story in told.values() if story.verdict)
    contradictions = sum(len(story.contradictions) for story in told.values())
    audit = judged.audit
    assert (
        summarise(
            counts,
            contradictions=contradictions,
            dropped_events=audit.dropped_events,
            damaged=audit.damaged,
            faults=audit.faults,
        )
        == audit
    )
    outcomes = {row["request_id"]: row["outcome"] for row in judged.lake_rows("silver_requests")}
    ended = {
        key: story.end.outcome or story.end.error_class
        for key, story in told.items()
        if story.verdict and story.end
    }
    assert ended == {key: outcome for key, outcome in outcomes.items() if outcome}


def test_the_command_tells_the_same(judged: Judged) -> None:
    rows = judged.lake_rows("audit_verdicts")
    unusual = [row for row in rows if row["verdict"] != "EXACTLY_ONE"]
    for row in [*rows[:1], *unusual[:2]]:
        ended = requite("why", str(judged.journal), row["request_id"], "--json")
        assert ended.code == 0, ended.err
        assert ended.record["verdict"] == row["verdict"]
        if row["evidence"]:
            shown = {(each["log"], each["seq"]) for each in json.loads(row["evidence"])}
            assert shown <= {(each["log"], each["seq"]) for each in ended.record["events"]}


async def test_the_page_tells_the_same(judged: Judged) -> None:
    rows = judged.lake_rows("audit_verdicts")
    unusual = [row for row in rows if row["verdict"] != "EXACTLY_ONE"]
    searcher = Searcher([judged.journal])
    page = Requests(searcher)
    try:
        for row in [*rows[:USUAL_SHOWN], *unusual]:
            scope = {"type": "http", "path_params": {"id": row["request_id"]}, "headers": []}
            answer = await page.story(Request(scope))
            assert answer.status_code == 200
            shown = unescape(bytes(answer.body).decode())
            story = await searcher.tell(row["request_id"])
            assert story["verdict"] == row["verdict"]
            assert f"<strong>{words.verdict(Verdict(row['verdict']))}</strong>" in shown
            assert all(each in shown for each in story["sentences"])
            assert all(each["what"] in shown for each in story["steps"])
    finally:
        await searcher.close()
