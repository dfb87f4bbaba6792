"""Which queued requests give way, because too little of their time is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.builds import pure_only

from requite.protocols.majordomo.lateness import is_late, learn_time

pytestmark = pure_only("stand-ins take the places of requests and services")


def pending(
    timeout_s: float, *, takes_s: float = 0.4, attempts: int = 0, others: bool = True
) -> Any:
    """Return a request that was accepted at 0, at a service that takes so long."""
    queue = SimpleNamespace(has_turns=others)
    service = SimpleNamespace(takes_s=takes_s, queue=queue)
    return SimpleNamespace(
        service=service, attempts=attempts, deadline=timeout_s, accepted_at=0.0, dispatched_at=1.0
    )


@pytest.mark.parametrize(
    ("timeout_s", "now", "late"),
    [
        (2.0, 1.49, False),  # 0.4 s at the worker, and 0.1 s
        (2.0, 1.51, True),
        (0.4, 0.0, True),  # of a short timeout, only an eighth is reserved beside the work
        (0.48, 0.01, False),
        (0.48, 0.03, True),
    ],
)
def test_a_request_is_late_once_less_than_its_work_is_left(
    timeout_s: float, now: float, late: bool
) -> None:
    assert is_late(pending(timeout_s), now) is late


def test_nothing_gives_way_if_nobody_else_waits() -> None:
    assert not is_late(pending(2.0, others=False), 1.99)


def test_a_redelivered_request_has_had_its_turn() -> None:
    assert not is_late(pending(2.0, attempts=1), 1.99)


def test_the_first_time_counts_in_full_and_later_ones_an_eighth() -> None:
    request = pending(9.0, takes_s=0.0)
    learn_time(request, 1.8)
    assert request.service.takes_s == pytest.approx(0.8)
    learn_time(request, 1.0)
    assert request.service.takes_s == pytest.approx(0.7)
