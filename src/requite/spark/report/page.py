"""The page: one self-contained HTML file, without scripts and network access."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from markupsafe import Markup

import requite
from requite.spark.report import access, behaviour, capacity, verdict, words
from requite.spark.report.facts import Facts
from requite.spark.report.markup import fill, legible

# Injected content could neither run scripts nor load resources.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PATH_SIZE: Final = 300


def render(facts: Facts) -> str:
    """Return the whole page."""
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return fill(
        "page.html",
        policy=_POLICY,
        verdict=words.verdict(facts.audit),
        style=Markup(style),
        when=words.period(facts.span) if facts.span else "The lake holds no requests yet.",
        parts=[
            verdict.verdict(facts),
            verdict.tiles(facts),
            verdict.breaches(facts),
            verdict.contradictions(facts),
            *_story(facts),
            access.access(facts),
        ],
        version=requite.__version__,
        made_on=words.day(facts.made_at),
        made_at=f"{facts.made_at:%H:%M}",
        lake=legible(facts.lake, _PATH_SIZE),
    )


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
