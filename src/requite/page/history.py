"""The last hour of a broker and of its services: a sample each ten seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from requite.metrics.figures import BrokerFigures, Figures, figures_of
from requite.page.readings import BrokerSnapshot
from requite.protocols.majordomo.reading import Reading

EVERY_S: Final = 10.0
KEPT_S: Final = 3600.0
_KEPT: Final = round(KEPT_S / EVERY_S)


class Sample(NamedTuple):
    """What happened in the ten seconds before `at`, per second; durations are in seconds, NaN
    without a reply. `oldest_s`: for how long the oldest request had waited then."""

    at: datetime
    accepted: float
    answered: float
    failed: float
    p50_s: float
    p99_s: float
    queued: int
    oldest_s: float


class History:
    """The samples of the broker, and of the services that had names on its page."""

    def __init__(self) -> None:
        self._of_broker: deque[Sample] = deque(maxlen=_KEPT)
        self._of_services: dict[str, deque[Sample]] = {}
        self._before: Reading | None = None

    def add(self, snapshot: BrokerSnapshot) -> None:
        """Add a sample of what happened since the last one."""
        now = snapshot.figures.now
        before, self._before = self._before, now
        figures = None if before is None else figures_of(before, now)
        if figures is None:
            return
        self._of_broker.append(_of_all(snapshot.at, figures))
        for each in figures.services:
            samples = self._of_services.setdefault(each.seen.name, deque(maxlen=_KEPT))
            queued, oldest_s = each.seen.queued, each.oldest_s
            samples.append(_sample(snapshot.at, each.happened, queued, oldest_s))
        self._forget(snapshot.at)

    def _forget(self, now: datetime) -> None:
        for samples in self._of_services.values():
            while samples and (now - samples[0].at).total_seconds() > KEPT_S:
                samples.popleft()
        for name in [name for name, samples in self._of_services.items() if not samples]:
            del self._of_services[name]

    def of_broker(self) -> Sequence[Sample]:
        """Return the samples of all requests, the oldest first."""
        return self._of_broker

    def of_service(self, name: str) -> Sequence[Sample]:
        """Return the samples of a service; none if it was never shown by its name."""
        return self._of_services.get(name, ())


def _of_all(at: datetime, figures: BrokerFigures) -> Sample:
    queued = sum(each.seen.queued for each in figures.services)
    oldest_s = max((each.oldest_s for each in figures.services), default=0.0)
    return _sample(at, figures.happened, queued, oldest_s)


def _sample(at: datetime, happened: Figures, queued: int, oldest_s: float) -> Sample:
    failed = sum(happened.failed.values())
    return Sample(
        at,
        happened.accepted,
        happened.answered,
        failed,
        happened.p50_s,
        happened.p99_s,
        queued,
        oldest_s,
    )
