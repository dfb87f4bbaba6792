"""The page of the report: well-formed, self-contained, safe, and consistent with its facts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from tests.spark.report.example_facts import (
    BAD,
    EMPTY,
    GOOD,
    NASTY,
    NOON,
    good_run,
    in_breach,
    span,
    with_denials,
)

from requite.spark.audit import Summary
from requite.spark.report.facts import SERVICES_SHOWN, Facts
from requite.spark.report.page import render
from requite.story.vocabulary import Contradiction

NAMES = [f"service-{number}" for number in range(40)]
ALL = {
    "empty": EMPTY,
    "one service": good_run(["nearest"]),
    "many services": good_run(NAMES),
    "breaches": in_breach(),
    "nasty names": in_breach(NASTY),
    "denials": with_denials(),
    "denials of nasty names": with_denials(NASTY, kinds=20),
    "one minute": good_run(["nearest"], over=span(1, timedelta(minutes=1))),
    "half a year": good_run(NAMES, over=span(90, timedelta(days=2))),
    "nothing has ended": EMPTY._replace(span=span(), audit=Summary(accepted=1, in_flight=1)),
}
GOES_OUT = {"src", "href", "xlink:href", "action", "srcset", "data", "poster", "style"}
DANGEROUS = {"script", "link", "img", "iframe", "object", "embed", "base", "a", "form", "image"}


class Reader(HTMLParser):
    """A parser that asserts that all elements of a page are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        # Only void elements of HTML, and any element of SVG, may be self-closing.
        assert tag == "meta" or "svg" in self.open, tag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(page: str) -> str:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return re.sub(r"\s+", " ", " ".join(reader.text))


@pytest.fixture(scope="module", params=ALL)
def facts(request: pytest.FixtureRequest) -> Facts:
    return ALL[request.param]


@pytest.fixture(scope="module")
def page(facts: Facts) -> str:
    return render(facts)


def test_a_page_is_well_formed_and_not_large(page):
    read(page)
    doctype, _, document = page.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    assert ElementTree.fromstring(document).tag == "html"
    assert len(page.encode()) < 300_000


def test_nothing_in_a_page_runs_or_loads_anything(page):
    assert "://" not in page
    assert "url(" not in page.replace("url(#", "")
    for element in ElementTree.fromstring(page.partition("\n")[2]).iter():
        assert element.tag not in DANGEROUS
        assert not GOES_OUT.intersection(element.attrib)
        assert not any(name.startswith("on") for name in element.attrib)


def test_ids_are_unique_and_references_resolve(page):
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


def test_every_chart_has_a_caption_and_a_table(page):
    whole = ElementTree.fromstring(page.partition("\n")[2])
    assert len(whole.findall(".//figure")) == len(whole.findall(".//svg"))
    for figure in whole.iter("figure"):
        chart, caption = figure.find("svg"), figure.findtext("figcaption")
        assert chart is not None
        assert caption
        assert chart.get("role") == "img"
        assert caption in chart.get("aria-label")
        assert chart.get("viewBox")
        assert chart.get("width") is None
        neighbours = next(group for group in whole.iter("div") if figure in list(group))
        assert figure.find(".//table") is not None or neighbours.find("div//table") is not None


def test_every_table_is_in_a_scrolling_element(page):
    whole = ElementTree.fromstring(page.partition("\n")[2])
    scrolling = [div for div in whole.iter("div") if div.get("class") == "scroll"]
    assert [div.find("table") for div in scrolling] == list(whole.iter("table"))


@pytest.mark.parametrize(
    ("audit", "words", "mood"),
    [
        (GOOD, "12,345 accepted, 12,345 ended exactly once.", "good"),
        (
            Summary(7, 5, in_flight=2),
            "7 accepted, 5 ended exactly once, 2 still in flight.",
            "good",
        ),
        (Summary(2, 2, dropped_events=1), "2 accepted, 2 ended exactly once.", "doubtful"),
        (Summary(2, 1, 1), "2 accepted, 1 ended exactly once, 1 never ended.", "bad"),
        (Summary(), "The journal contains no requests.", "empty"),
    ],
)
def test_the_verdict_comes_first(audit, words, mood):
    page = render(EMPTY._replace(audit=audit))
    first = ElementTree.fromstring(page.partition("\n")[2]).find(".//section")
    assert first.get("class") == f"verdict {mood}"
    assert first.findtext("p[@class='words']") == words
    assert f"<title>requite: {words}</title>" in page


def test_an_incomplete_journal_is_reported():
    text = read(render(EMPTY._replace(audit=Summary(2, 2, dropped_events=1, damaged=3))))
    assert "1 event could not be written, 3 records cannot be read" in text


def test_undecided_requests_are_reported():
    text = read(render(EMPTY._replace(audit=Summary(2, 1, undecided=1))))
    assert "1 request cannot be judged: a clock was set meanwhile" in text


def test_violations_are_shown_with_their_evidence():
    text = read(render(in_breach()))
    for phrase in (
        "2 ended too late",
        "3 never ended",
        "2 ended more than once",
        "1 ended without being accepted",
        "1 accepted twice",
        "The first 4 are below",
        "MISSING: accepted, and never ended",
        "00000000000000000000000000000002",
        "2 more events, not shown.",
        "dispatched",
        "RemoteFailure",
        "The 1 most frequent of 3.",
        "1 accepted twice, 3 contradictions.",
        "3 contradictions between clients, brokers and workers.",
        "RAN_AGAIN: it is not idempotent, and was dispatched or run more than once.",
    ):
        assert phrase in text, phrase
    assert BAD.violations == 9


def test_every_kind_of_contradiction_has_a_count_and_a_meaning():
    page = ElementTree.fromstring(render(in_breach()).partition("\n")[2])
    rows = page.findall(".//section[@id='contradictions']/div/table/tbody/tr")
    cells = [[cell.text for cell in row] for row in rows]
    assert [(kind, n) for kind, n, _ in cells] == [
        (kind.value, str(1 + number)) for number, kind in enumerate(Contradiction)
    ]
    assert all(meaning for _, _, meaning in cells)


def test_a_contradiction_alone_is_bad():
    page = render(EMPTY._replace(audit=Summary(2, 2, contradictions=1)))
    assert "2 accepted, 2 ended exactly once, 1 contradiction." in read(page)
    assert 'class="verdict bad"' in page


def test_the_figures_match_the_facts():
    text = read(render(good_run(["nearest"]))).replace("\N{NO-BREAK SPACE}", " ")
    for phrase in (
        "2 March 2026, 12:00:00 to 12:00:30 UTC (30 s)",
        "41.0 ms",
        "240 ms",
        "p50 46.0 ms, p99 1.68 s",
        "In 1 step of 30 there were none.",
        "58 of 26,158 failed.",
        "At most 96, at 12:00:00; on average 41.5.",
        "6 workers: 2 lost, 4 alive. The longest silence was 800 ms.",
        "4 → 3 workers · 64 slots · timeout 1.25 s",
        "Three suffice.",
    ):
        assert phrase in text, phrase


def test_the_section_on_access() -> None:
    text = read(render(with_denials()))
    for phrase in (
        "55 denied, among them 41 logins with a wrong password or user name; 1 change of rights.",
        "shop call pay-1 7 2026-03-02 12:00:00 2026-03-02 12:05:00 shop has no right to call",
        "192.0.2.7 2026-03-02 12:00 40 12",
        "unknown 2026-03-02 12:00 1 1",
        "2026-03-02 12:05:00 shop changed",
        "shop 12,000 11,990 10",
        "unknown 345 345 0",
    ):
        assert phrase in text, phrase


def test_the_most_frequent_denials_are_shown() -> None:
    text = read(render(with_denials(kinds=20)))
    assert "Denied: the 12 most frequent of 20" in text
    assert "pay-11" in text
    assert "pay-12" not in text


def test_there_is_no_section_on_access_without_decisions() -> None:
    assert "Access" not in read(render(good_run(["nearest"])))


def test_denials_without_requests_are_shown() -> None:
    page = render(EMPTY._replace(access=with_denials().access))
    assert "The journal contains no requests." in read(page)
    assert "pay-1" in read(page)


def test_services_beyond_the_limit_are_summed():
    text = read(render(good_run(NAMES)))
    assert f"{len(NAMES) - SERVICES_SHOWN} other services" in text
    assert "35 other services" in text  # in the chart of the throughput
    assert NAMES[SERVICES_SHOWN - 1] in text
    assert NAMES[SERVICES_SHOWN] not in text
    assert "28 more services not shown" in text


def test_names_of_peers_are_escaped():
    page = render(in_breach(NASTY))
    assert "<script" not in page
    assert page.count("</style>") == 1
    assert not set(page) & {"\x00", "\x1b", "\u202e", "\ud800"}
    assert "\\x00\\x1b[2J\\u202e" in read(page)


def test_an_empty_lake_says_so():
    text = read(render(EMPTY))
    assert "The lake holds no requests yet." in text
    assert "requite" in text
    assert f"{NOON:%H:%M} UTC" in text


def test_a_page_does_not_depend_on_the_order_of_hashes():
    code = (
        "from hashlib import sha256; from tests.spark.report.example_facts import good_run;"
        " from requite.spark.report.page import render;"
        " print(sha256(render(good_run(list('abcdefg'))).encode()).hexdigest())"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1
