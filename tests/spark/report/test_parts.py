"""Parts of the report: words, steps, bars, axes, elements, charts."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup
from tests.spark.report.example_facts import NOON, span

from requite.errors import ConfigurationError
from requite.spark.new_rows import LATEST
from requite.spark.report import words
from requite.spark.report.facts import STEPS_DRAWN, Bar
from requite.spark.report.html_table import table
from requite.spark.report.lake import finite, percentile
from requite.spark.report.markup import fill, legible
from requite.spark.report.scales import merge_bars, round_values
from requite.spark.report.steps import SAMPLES, depths, is_fine, span_of
from requite.spark.report.svg import UnsafeChart, inline_svg


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "–"),
        (0.0, "0.00 ms"),
        (0.000_25, "0.25 ms"),
        (0.0412, "41.2 ms"),
        (0.25, "250 ms"),
        (3.456, "3.46 s"),
        (89.0, "89 s"),
        (90.0, "2 min"),
        (3_600.0, "60 min"),
        (7_200.0, "2 h"),
        (9_000.0, "2 h 30 min"),
        (500_000.0, "6 days"),
    ],
)
def test_durations(seconds, expected):
    assert words.duration(seconds).replace(words.GAP, " ") == expected


def test_counts_and_shares():
    assert words.counted(1, "reply", "replies") == "1 reply"
    assert words.counted(2_000, "reply", "replies") == "2,000 replies"
    assert words.share(0.052).replace(words.GAP, " ") == "5.2 %"
    assert words.share(0.52).replace(words.GAP, " ") == "52 %"
    assert [words.figure(value) for value in (None, 0.123, 12.34, 1234.5)] == [
        *("–", "0.12", "12.3", "1,234")
    ]


def test_rates_have_a_suitable_unit():
    assert [words.rate(n, 100) for n in (123_400, 250, 99, 1, 0.01, 0)] == [
        *("1,234/s", "2.50/s", "59.4/min", "36.0/h", "8.64/day", "0.00/day")
    ]
    assert words.rate(100, 100, words.unit_of(0.5)) == "60.0/min"


def test_instants_are_as_precise_as_the_steps():
    at = NOON + timedelta(seconds=1.5)
    assert words.clock(at, span(step=timedelta(seconds=0.5))) == "12:00:01.5"
    assert words.clock(at, span()) == "12:00:01"
    assert words.clock(at, span(step=timedelta(minutes=1))) == "12:00"
    assert words.clock(at, span(90, timedelta(hours=1))) == "03-02 12:00"
    assert words.clock(at, span(90, timedelta(days=1))) == "2026-03-02"
    whole = span(90, timedelta(hours=1))
    assert words.period(whole).startswith("2 March 2026, 12:00 to 6 March 2026, 06:00 UTC")


@given(
    st.timedeltas(timedelta(0), timedelta(days=40_000)), st.timedeltas(timedelta(0), timedelta(1))
)
def test_a_span_holds_both_instants_and_few_steps(length, shift):
    began = NOON - timedelta(days=20_000) + shift
    cut = span_of(began, began + length)
    assert cut.began <= began
    assert began + length < cut.ended
    assert 1 <= len(cut.steps) <= STEPS_DRAWN
    assert cut.steps[0] == cut.began
    assert cut.steps[-1] + cut.step == cut.ended
    assert is_fine(cut) == (cut.step_s < 60)


@pytest.mark.parametrize("began", [NOON, LATEST - timedelta(days=9), LATEST])
def test_a_span_ends_at_the_latest_instant(began):
    cut = span_of(began, LATEST)
    assert cut.began <= began
    assert cut.ended <= LATEST
    assert cut.steps[-1] + cut.step == cut.ended


def test_depths_are_sums_of_arrivals_and_departures():
    over = span(2)
    rows = depths(over, {0: 5, 4: -2, SAMPLES: -3, SAMPLES + 1: 1}, {1: 0.5})
    assert [row.deepest for row in rows] == [5, 1]
    assert [row.average for row in rows] == [pytest.approx((4 * 5 + 6 * 3) / 10), 0.9]
    assert [row.oldest_age_s for row in rows] == [None, 0.5]


@given(
    st.dictionaries(st.integers(-50, 1500), st.integers(1, 10**6), min_size=1, max_size=200),
    st.integers(1, 60),
)
def test_merged_bars_keep_every_count_and_are_few(buckets, at_most):
    bars = [Bar(0.001 * 1.02**number, n) for number, n in buckets.items()]
    merged = merge_bars(bars, at_most)
    assert sum(n for _, _, n in merged) == sum(buckets.values())
    assert len(merged) <= at_most + 1
    assert all(low < high for low, high, _ in merged)
    assert merged[0][0] < min(bars).upper_ms
    assert merged[-1][1] >= max(bars).upper_ms * 0.9999
    for before, after in pairwise(merged):
        assert after[0] >= before[1] * 0.9999


def test_a_bar_contains_what_is_longer_than_the_bar_before():
    bars = [Bar(1.02**number, 1) for number in range(1, 101)]
    merged = merge_bars(bars, 10)
    assert [n for _, _, n in merged] == [10] * 10
    assert merged[0][:2] == (pytest.approx(1.0), pytest.approx(1.02**10))


@given(st.floats(1e-3, 1e7), st.floats(1, 1e6))
def test_round_values_enclose_the_range(lowest, ratio):
    values = round_values(lowest, lowest * ratio)
    assert values[0] <= lowest
    assert values[-1] >= lowest * ratio
    assert values == sorted(set(values))
    assert 2 <= len(values) <= 16


def test_percentiles_are_upper_edges():
    histogram = (Bar(1.0, 50), Bar(2.0, 49), Bar(8.0, 1))
    shares = (0.5, 0.95, 0.99, 1.0)
    assert [percentile(histogram, share) for share in shares] == [1.0, 2.0, 2.0, 8.0]
    assert percentile((), 0.5) is None
    assert [finite(value) for value in (None, float("inf"), float("nan"), 1.5)] == [
        *(None, None, None, 1.5)
    ]


def test_text_is_escaped_and_markup_is_not():
    inner = table(("<i>",), [("a&b",)], label='x"y')
    assert isinstance(inner, Markup)
    assert 'aria-label="x&#34;y"' in inner
    assert '<th scope="col">&lt;i&gt;</th>' in inner
    assert "<td>a&amp;b</td>" in inner
    whole = fill("group.html", kind="card", title="<b>", parts=[inner, "<p>"])
    assert inner in whole
    assert "<h3>&lt;b&gt;</h3>" in whole
    assert "&lt;p&gt;" in whole


def test_a_template_without_one_of_its_values_is_an_error():
    with pytest.raises(UndefinedError, match="'reason' is undefined"):
        fill("advice.html", service="echo", change="keep 1 worker")


@given(st.text())
def test_any_name_becomes_one_short_visible_line(name):
    shown = legible(name, 20)
    assert len(shown) <= 20
    assert not any(unicodedata.category(character).startswith("C") for character in shown)
    shown.encode()  # no lone surrogates


def test_a_chart_with_an_image_is_refused():
    import altair as alt

    data = alt.InlineData(values=[{"x": 1, "picture": "data:image/png;base64,AAAA"}])
    drawn = alt.Chart(data).mark_image().encode(x="x:Q", url="picture:N")
    with pytest.raises(UnsafeChart, match="'image'"):
        inline_svg(drawn, name="drawn", label="a picture")


def test_a_run_with_a_report_is_refused_without_altair(monkeypatch, tmp_path):
    from requite.spark import report, runner

    monkeypatch.setattr(report, "find_spec", lambda name: None if name == "altair" else name)
    with pytest.raises(
        ConfigurationError, match=r"requires altair: pip install 'requite\[report\]'"
    ):
        runner.run(None, tmp_path, tmp_path / "lake", report=tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
