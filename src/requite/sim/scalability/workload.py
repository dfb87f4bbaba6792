"""The work of a run: the calls, and the bodies that go with them.

A body has lines: which call it is and what its handler shall do, then the payload. A reply has a
line for each partial that was joined into it, one that says which execution it comes from, and the
payload again.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from requite.sim.history import Call, History
from requite.sim.knobs import Behaviour
from requite.sim.scalability.knobs import ScalabilityKnobs, SpClientSpec
from requite.sim.scalability.stack import parse
from requite.sim.workload import CallPlan, Task, final_frames, parse_task, partial_frames

_BIG_SIZES: Final = (1_000, 9_000, 70_000)
_SERVICE_SPREAD: Final = 3.0  # service times are up to so many times the knob's
_NEWLINE: Final = b"\n"

# Without a deadline, a call ends only if some handler answers in the end.
_ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)


# --- bodies ---------------------------------------------------------------------------------------
def body_of(plan: CallPlan) -> list[bytes]:
    """Make the body of a request."""
    return [_NEWLINE.join(plan.frames)]


def read_task(body: bytes) -> tuple[Task, bytes] | None:
    """Read the body of a request: what to do, and the payload. None if it is not one of ours."""
    frames = body.split(_NEWLINE)
    task = parse_task(frames)
    return None if task is None else (task, frames[1])


def call_in(history: History, payload: bytes) -> Call | None:
    """Return the call that a request belongs to; None for a stranger's."""
    parsed = parse(payload)
    read = None if parsed is None else read_task(parsed.body)
    return None if read is None else history.calls.get(read[0].number)


def final_body(number: int, execution: int, payload: bytes) -> list[bytes]:
    """Make the body of a reply, or the end of it."""
    return [_NEWLINE.join(final_frames(number, execution, payload))]


def partial_body(number: int, execution: int, index: int) -> list[bytes]:
    """Make a part of a reply."""
    return [partial_frames(number, execution, index)[0] + _NEWLINE]


def read_reply(body: bytes) -> list[bytes]:
    """Take a reply apart: the labels of the partials, that of the final one, the payload."""
    return body.split(_NEWLINE)


# --- calls ----------------------------------------------------------------------------------------
def plan_calls(knobs: ScalabilityKnobs, rng: Random) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order."""
    at_s = 0.0
    last: dict[str, int] = {}  # call of each client
    for number in range(1, knobs.calls + 1):
        if number == 1 or rng.random() >= knobs.bursts_p:  # else together with the one before
            at_s = 0.1 + rng.random() * (knobs.faulty_s - 0.1)
        client = rng.choice(knobs.clients)
        behaviour = rng.choices(knobs.behaviours, knobs.weights)[0]
        idempotent = rng.random() < knobs.idempotent_p
        yield CallPlan(
            number=number,
            at_s=at_s,
            client=client.name,
            service="",
            behaviour=behaviour,
            service_s=knobs.service_s * rng.uniform(0.3, _SERVICE_SPREAD),
            parts=rng.randint(1, 5) if behaviour is Behaviour.STREAM else 0,
            payload=_draw_payload(knobs, rng, number),
            timeout_s=_draw_timeout(knobs, rng, behaviour, client, idempotent),
            idempotent=idempotent,
            wants_partials=False,
            cancel_after_s=rng.expovariate(4.0) if rng.random() < knobs.cancel_p else None,
            follows=last.get(client.name) if rng.random() < knobs.follow_p else None,
        )
        last[client.name] = number


def probe(knobs: ScalabilityKnobs, client: str, number: int, timeout_s: float) -> CallPlan:
    """Make a call that must be answered once all is well."""
    return CallPlan(
        number=number,
        at_s=0.0,
        client=client,
        service="",
        behaviour=Behaviour.ECHO,
        service_s=min(knobs.service_s, 0.001),
        parts=0,
        payload=b"probe %d" % number,
        timeout_s=timeout_s,
        idempotent=True,
        wants_partials=False,
        cancel_after_s=None,
    )


def _draw_payload(knobs: ScalabilityKnobs, rng: Random, number: int) -> bytes:
    size = rng.choice(_BIG_SIZES) if rng.random() < knobs.big_p else rng.randint(0, 40)
    return (b"%d:" % number) * (size // 3)


def _draw_timeout(
    knobs: ScalabilityKnobs,
    rng: Random,
    behaviour: Behaviour,
    client: SpClientSpec,
    idempotent: bool,
) -> float | None:
    """Only what is sent again until it is answered may go without a deadline."""
    may_be_endless = client.is_persistent and idempotent and behaviour in _ANSWERING
    if may_be_endless and rng.random() < knobs.endless_p:
        return None
    return knobs.timeout_s * rng.uniform(0.2, 1.5)
