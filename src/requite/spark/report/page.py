"""The page: one HTML file that needs nothing else, neither script nor network."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import requite
from requite.spark.report import behaviour, capacity, verdict, words
from requite.spark.report.facts import Facts
from requite.spark.report.markup import Markup, legible, tag

# Whatever slipped into the page could neither run nor load anything.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PATH_SIZE: Final = 300


def render(facts: Facts) -> str:
    """Return the whole page."""
    return f"<!DOCTYPE html>\n{tag('html', _head(facts), _body(facts), lang='en')}\n"


def _head(facts: Facts) -> Markup:
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"requite: {words.verdict(facts.audit)}"),
        tag("style", Markup(style)),
    )


def _body(facts: Facts) -> Markup:
    return tag(
        "body",
        tag(
            "main",
            _header(facts),
            verdict.verdict(facts),
            verdict.tiles(facts),
            verdict.breaches(facts),
            verdict.contradictions(facts),
            *_story(facts),
            _footer(facts),
        ),
    )


def _header(facts: Facts) -> Markup:
    when = words.period(facts.span) if facts.span else "The lake holds no requests yet."
    return tag("header", tag("h1", "What became of the requests"), tag("p", when))


def _story(facts: Facts) -> list[Markup | None]:
    span = facts.span
    if span is None:
        return []
    return [
        behaviour.latency(facts, span),
        behaviour.flow(facts, span),
        behaviour.workers(facts, span),
        capacity.capacity(facts),
        capacity.advice(facts),
        capacity.failures(facts, span),
    ]


def _footer(facts: Facts) -> Markup:
    made = f"Made by requite {requite.__version__} on {words.day(facts.made_at)}, "
    return tag(
        "footer",
        f"{made}{facts.made_at:%H:%M} UTC, from the lake ",
        tag("code", legible(facts.lake, _PATH_SIZE)),
        ". All times are UTC.",
    )
