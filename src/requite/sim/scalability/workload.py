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
from requite.sim.plain_calls import ANSWERING, plain_call, plan_plain_calls
from requite.sim.scalability.knobs import ScalabilityKnobs, SpClientSpec
from requite.sim.scalability.stack import parse
from requite.sim.workload import CallPlan, Task, final_frames, parse_task, partial_frames

_NEWLINE: Final = b"\n"


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
    return plan_plain_calls(knobs, rng, _may_be_endless)


def probe(knobs: ScalabilityKnobs, client: str, number: int, timeout_s: float) -> CallPlan:
    """Make a call that must be answered once all is well."""
    return plain_call(client, number, timeout_s, service_s=min(knobs.service_s, 0.001))


def _may_be_endless(client: SpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
    """Only what is sent again until it is answered may go without a deadline."""
    return client.is_persistent and idempotent and behaviour in ANSWERING
