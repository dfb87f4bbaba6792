"""The story of one request, from the journals at hand.

    findings = search(["journal"], [call_id])
    story = tell(findings, call_id.hex())

The verdict is that of the audit, as of the newest event in the journals, except in two cases that
only the audit decides, from all requests and clocks: the ids that brokers make up for clients of
MDP 0.1 and 0.2 (`requite.spark.aliases`), and clocks that were set (`requite.spark.skew`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from requite.chronicle import MADE_UP
from requite.journal.event import Event
from requite.journal.search import Findings, LogCover
from requite.story import words
from requite.story.contradictions import contradictions
from requite.story.rules import USUAL, Terms, due_at, judge, last_acceptance, own_of
from requite.story.steps import phrase, steps
from requite.story.vocabulary import (
    ACCEPTED,
    BROKER,
    CLIENT,
    DISPATCHED,
    OK,
    OUTCOMES,
    PARTIAL,
    REDELIVERED,
    REFUSED,
    STARTED,
    WORKER,
    Contradiction,
    Verdict,
)

_REASONS_SHOWN: Final = 3
_SECOND: Final = timedelta(seconds=1)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Story(NamedTuple):
    """What became of a request. `events` are all of it, by time.

    `end` is the event by which the caller was told; without a journal of the client, that by which
    a broker ended or refused the request; None: there is none. `sentences` say what happened.
    """

    request_id: str
    service: str
    verdict: Verdict | None
    contradictions: tuple[Contradiction, ...]
    end: Event | None
    events: tuple[Event, ...]
    sentences: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return the story as a JSON-ready dict."""
        return {
            "request_id": self.request_id,
            "service": self.service,
            "verdict": self.verdict and self.verdict.value,
            "meaning": words.verdict(self.verdict),
            "contradictions": [
                {"kind": kind.value, "meaning": words.CONTRADICTIONS[kind]}
                for kind in self.contradictions
            ],
            "end": self.end and self.end.record(),
            "sentences": list(self.sentences),
            "steps": [
                {
                    "ts": step.at and step.at.isoformat(timespec="microseconds"),
                    "who": step.who,
                    "what": step.what,
                }
                for step in steps(self.events)
            ],
            "events": [event.record() for event in self.events],
        }


def tell(findings: Findings, request_id: str, terms: Terms = USUAL) -> Story | None:
    """Return the story of a request; None if there is no event of it."""
    events = [event for event in findings.events if event.request_id == request_id]
    if not events:
        return None
    life = _life(events)
    own = own_of(life)
    last = last_acceptance(own)
    now = _judged_at(findings, request_id, last)
    found = judge(
        life,
        now,
        longest=timedelta(seconds=terms.longest_deadline_s),
        grace=timedelta(seconds=terms.grace_s),
    )
    end = _end(own, last) or _refusal(life, last)
    story = Story(
        request_id,
        max((event.service for event in life if event.service), default=""),
        found,
        tuple(contradictions(life, terms)),
        end,
        tuple(events),
        (),
    )
    return story._replace(sentences=tuple(_sentences(story, life, own, now, findings)))


def record_of(story: Story | None, request_id: str, findings: Findings) -> dict[str, Any]:
    """Return what was found of a request, with the logs that were searched, as a JSON-ready dict;
    `story` is what `tell` returned."""
    found = {"request_id": request_id, "found": story is not None}
    told = {} if story is None else story.record()
    logs = [cover.record() for cover in findings.logs]
    return found | told | {"logs": logs, "missing_logs": findings.missing}


def _life(events: Sequence[Event]) -> list[Event]:
    """Return the events that the rules count, in their order."""
    counted = [
        event
        for event in events
        if event.raw is None and event.ts is not None and event.kind != PARTIAL
    ]
    return sorted(counted, key=lambda event: (event.ts or _NEVER, event.log, event.seq or 0))


def _judged_at(findings: Findings, request_id: str, last: Event | None) -> datetime:
    """Return the instant as of which a request is judged: that of the newest event.

    A request that is open by a copy of a log is judged as of the newest event in that copy; one
    that brokers accepted as of the earliest of such instants (docs/topics/audit.md, "A complete
    journal").
    """
    now = findings.newest or _NEVER
    if last is None:
        return now
    is_clients = last.role == CLIENT
    client = last.log if is_clients else f"{CLIENT}-{request_id[:16]}"

    def counts(cover: LogCover) -> bool:
        name = cover.log.log
        return name == client or (not is_clients and name.startswith(BROKER))

    behind = [each.last for each in findings.logs if each.is_behind and counts(each)]
    return min([now, *(at for at in behind if at is not None)])


def _end(own: Sequence[Event], last: Event | None) -> Event | None:
    """Return the outcome of the last acceptance; without an acceptance, the first outcome."""
    ends = [event for event in own if event.kind in OUTCOMES]
    if last is None:
        return next(iter(ends), None)
    ends = [event for event in ends if event.log == last.log]
    written_later = (event for event in ends if (event.seq or 0) > (last.seq or 0))
    later = (event for event in ends if (event.ts or _NEVER) >= (last.ts or _NEVER))
    return next(written_later, None) or next(later, None)


def _refusal(life: Sequence[Event], last: Event | None) -> Event | None:
    """Return the last refusal of a request that was never accepted."""
    refusals = [event for event in life if event.kind == REFUSED]
    return refusals[-1] if refusals and last is None else None


# --- sentences --------------------------------------------------------------------------------
def _sentences(
    story: Story,
    life: Sequence[Event],
    own: Sequence[Event],
    now: datetime,
    findings: Findings,
) -> list[str]:
    last = last_acceptance(own)
    told = [_outcome(story, own, last, now)]
    if story.end is None and life:
        newest = life[-1]
        told.append(f"The newest event of it: {words.writer(newest)} {phrase(newest)}.")
    told += _efforts(life)
    told += _unseen(life, findings)
    if last is not None:
        told += _refusals(life)
    told += [f"{kind.value}: {words.CONTRADICTIONS[kind]}." for kind in story.contradictions]
    if int(story.request_id[:2], 16) & MADE_UP:
        told.append(
            "A broker made this id up for a client of MDP 0.1 or 0.2, whose journal has the call "
            "under another id; `requite spark run` finds both halves."
        )
    return told


def _outcome(story: Story, own: Sequence[Event], last: Event | None, now: datetime) -> str:
    if story.end is None:
        if last is None:
            return f"{words.NO_VERDICT[0].upper()}{words.NO_VERDICT[1:]}."
        left_s = (due_at(own, last, timedelta(seconds=USUAL.longest_deadline_s)) - now) / _SECOND
        if left_s >= 0:
            return (
                f"It has no outcome yet; {words.duration(left_s)} of its time are left, as of the "
                "newest event in the journals."
            )
        return (
            f"It has no outcome; its time was over {words.duration(-left_s)} before the newest "
            "event in the journals."
        )
    if story.end.kind == REFUSED:
        who = "The client" if story.end.role == CLIENT else "The broker"
        return f"{who} refused it with {words.failure(story.end)}{words.because(story.end)}."
    asked = next((event.ts for event in own if event.kind == ACCEPTED), None)
    after_s = None
    if asked is not None and story.end.ts is not None:
        after_s = max((story.end.ts - asked).total_seconds(), 0.0)
    return words.outcome(story.end, after_s)


def _efforts(life: Sequence[Event]) -> list[str]:
    """Return how often the request was given to workers, run and taken back, if not once."""
    given = sum(event.kind == DISPATCHED for event in life)
    begun = sum(event.kind == STARTED for event in life)
    taken_back = [event for event in life if event.kind == REDELIVERED]
    told = []
    if given > 1:
        told.append(f"Brokers gave it to workers {words.counted(given, 'time')}.")
    if begun > 1:
        told.append(f"Handlers started {words.counted(begun, 'time')}.")
    if taken_back:
        reasons = [
            f"{words.writer(event)}{words.because(event)}" for event in taken_back[:_REASONS_SHOWN]
        ]
        more = len(taken_back) - len(reasons)
        rest = f"; and {more:,} more" if more else ""
        times = words.counted(len(taken_back), "attempt was", "attempts were")
        told.append(f"{times} lost or given up and retried: {'; '.join(reasons)}{rest}.")
    return told


def _unseen(life: Sequence[Event], findings: Findings) -> list[str]:
    """Return which workers were given the request, did not answer it, and have no event of it."""
    answered = {event.worker for event in life if event.role == BROKER and event.outcome == OK}
    seen = {event.log for event in life}
    here = {cover.log.log for cover in findings.logs}
    given = {event.worker: None for event in life if event.kind == DISPATCHED and event.worker}
    told = []
    for worker in given:
        log = f"{WORKER}-{worker}"
        if worker in answered or log in seen:
            continue
        told.append(
            f"The journal of worker {words.process(worker)} has no event of it: the worker did not "
            "get it, or was killed within 0.05 s."
            if log in here
            else f"No journal of worker {words.process(worker)} is here."
        )
    return told[:_REASONS_SHOWN]


def _refusals(life: Sequence[Event]) -> list[str]:
    refusals = [event for event in life if event.kind == REFUSED]
    shown = [
        f"{words.writer(event)}: {words.failure(event)}{words.because(event)}"
        for event in refusals[:_REASONS_SHOWN]
    ]
    if not refusals:
        return []
    more = len(refusals) - len(shown)
    rest = f"; and {more:,} more" if more else ""
    times = words.counted(len(refusals), "time")
    return [f"It was refused {times} before that: {'; '.join(shown)}{rest}."]
