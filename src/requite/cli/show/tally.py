"""What came back: how many answers each request got, how fast, and whether they are true."""

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
    """What the demo found. `answered` counts requests with at least one answer, whatever it says,
    `correct` those with exactly one that is right, `duplicated` the answers beyond the first.
    `manager_kills` is None where there is no manager."""

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
        """Return what applies, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def is_good(self) -> bool:
        """Whether every request was answered exactly once and correctly."""
        return self.correct == self.answered == self.requests and not self.lost + self.duplicated


@dataclass(slots=True)
class Tally:
    """The replies so far, as they came: they are read when all is over, so that the clients keep
    the workers busy. Request number n asked for `asked[n]`."""

    asked: Sequence[str]
    bodies: list[bytes] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    sent_again: int = 0
    failures: list[CallError] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many calls have ended."""
        return len(self.bodies) + len(self.failures)

    def take(self, outcome: Reply | CallError) -> None:
        """Book how a call ended."""
        self.sent_again += max(outcome.attempts - 1, 0)
        if isinstance(outcome, CallError):
            self.failures.append(outcome)
        else:
            self.bodies.append(outcome.body)
            self.latencies_s.append(outcome.elapsed)

    def recent_s(self) -> list[float]:
        """Return the latencies of the latest calls, in order of size."""
        return sorted(self.latencies_s[-_RECENT:])

    def judge(
        self,
        truth: Mapping[str, Answer],
        *,
        took_s: float,
        retries: int,
        kills: tuple[int, int],
        manager_kills: int | None = None,
    ) -> Verdict:
        """Compare every answer with the truth. `kills`: of workers, of the broker."""
        answers = self._answers()
        ordered = sorted(self.latencies_s)
        right = (truth[code] for code in self.asked)
        return Verdict(
            requests=len(self.asked),
            answered=len(answers),
            correct=sum(answers.get(number) == [answer] for number, answer in enumerate(right)),
            lost=len(self.asked) - len(answers),
            duplicated=len(self.bodies) - len(answers),
            retries=retries,
            worker_kills=kills[0],
            broker_kills=kills[1],
            requests_per_s=round(len(self.bodies) / took_s, 1),
            p50_ms=round(percentile(ordered, 0.5) * 1000, 3),
            p99_ms=round(percentile(ordered, 0.99) * 1000, 3),
            manager_kills=manager_kills,
        )

    def _answers(self) -> dict[int, list[Answer]]:
        """Return the answers by the number that they carry themselves.

        Not by the call that got them: one that went astray shows as one lost and one duplicated.
        """
        answers: dict[int, list[Answer]] = {}
        for body in self.bodies:
            said = json.loads(body)
            answer = tuple((row["metres"], row["icao"]) for row in said["nearest"])
            answers.setdefault(int(said["reference"]), []).append(answer)
        return answers
