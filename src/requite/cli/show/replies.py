"""The replies of a demo: how many per request, their latencies, and whether they are correct."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from requite.cli.latency import percentile
from requite.cli.show.direct import Answer
from requite.errors import CallError
from requite.request import Reply

_RECENT: Final = 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a demo.

    `answered` counts requests with at least one answer, `correct` those with exactly one answer
    that is correct, `duplicated` the further answers. `manager_kills` is None without a manager.
    """

    requests: int
    answered: int
    correct: int
    lost: int
    duplicated: int
    retries: int
    worker_kills: int
    broker_kills: int
    manager_kills: int | None = field(default=None, kw_only=True)
    requests_per_s: float
    p50_ms: float
    p99_ms: float

    def record(self) -> dict[str, float]:
        """Return the fields that are not None, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def is_good(self) -> bool:
        """Whether every request was answered exactly once and correctly."""
        return self.correct == self.answered == self.requests and not self.lost + self.duplicated


@dataclass(slots=True)
class Replies:
    """The replies so far. They are parsed after the run, so that clients keep the workers busy.

    Request n asks for `airports[n]`. `are_in_envelopes`: bodies say whether they are negative.
    """

    airports: Sequence[str]
    are_in_envelopes: bool = field(default=False, kw_only=True)
    bodies: list[bytes] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    sent_again: int = 0
    failures: list[CallError] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Number of calls that have ended."""
        return len(self.bodies) + len(self.failures)

    def add(self, outcome: Reply | CallError) -> None:
        """Record the outcome of a call."""
        self.sent_again += max(outcome.attempts - 1, 0)
        if isinstance(outcome, CallError):
            self.failures.append(outcome)
        else:
            self.bodies.append(outcome.body)
            self.latencies_s.append(outcome.elapsed)

    def recent_s(self) -> list[float]:
        """Return the latencies of the latest calls, in ascending order."""
        return sorted(self.latencies_s[-_RECENT:])

    def judge(
        self,
        correct_answers: Mapping[str, Answer],
        *,
        took_s: float,
        retries: int,
        kills: tuple[int, int],
        manager_kills: int | None = None,
    ) -> Verdict:
        """Compare every answer with the correct one. `kills`: of workers, of brokers."""
        answers = self._answers()
        ordered = sorted(self.latencies_s)
        expected = (correct_answers[code] for code in self.airports)
        return Verdict(
            requests=len(self.airports),
            answered=len(answers),
            correct=sum(answers.get(number) == [answer] for number, answer in enumerate(expected)),
            lost=len(self.airports) - len(answers),
            duplicated=len(self.bodies) - len(answers),
            retries=retries,
            worker_kills=kills[0],
            broker_kills=kills[1],
            requests_per_s=round(len(self.bodies) / took_s, 1),
            p50_ms=round(percentile(ordered, 0.5) * 1000, 3),
            p99_ms=round(percentile(ordered, 0.99) * 1000, 3),
            manager_kills=manager_kills,
        )

    def _opened(self, body: bytes) -> bytes:
        """Return the answer in a body, b"" of a negative reply."""
        if not self.are_in_envelopes:
            return body
        from requite.typed.envelope import unwrap_reply

        reply = unwrap_reply(body)
        return b"" if reply.is_negative else reply.payload

    def _answers(self) -> dict[int, list[Answer]]:
        """Return the answers by the request number in their body.

        So an answer that reached the wrong call counts as one lost and one duplicated.
        """
        answers: dict[int, list[Answer]] = {}
        for body in filter(None, map(self._opened, self.bodies)):
            record = json.loads(body)
            answer = tuple((row["metres"], row["icao"]) for row in record["nearest"])
            answers.setdefault(int(record["reference"]), []).append(answer)
        return answers
