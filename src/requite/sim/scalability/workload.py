"""The calls of a run, and their bodies.

The first line of a request's body has the call and the handler's instructions; the payload follows.
A reply has a line for each joined partial, a line that names its execution, and the payload.
"""

from __future__ import annotations

from typing import Final

from requite.sim.kernel.history import Call, History
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.workload import (
    CallPlan,
    Task,
    final_frames,
    parse_task,
    partial_frames,
    plain_call,
)
from requite.sim.scalability.knobs import ScalabilityKnobs, SpClientSpec
from requite.sim.scalability.stack import parse

_NEWLINE: Final = b"\n"


# --- bodies ---------------------------------------------------------------------------------------
def body_of(plan: CallPlan) -> list[bytes]:
    """Return the body of a request."""
    return [_NEWLINE.join(plan.frames)]


def read_task(body: bytes) -> tuple[Task, bytes] | None:
    """Parse the body of a request into its task and payload; None for an intruder's request."""
    frames = body.split(_NEWLINE)
    task = parse_task(frames)
    return None if task is None else (task, frames[1])


def call_in(history: History, payload: bytes) -> Call | None:
    """Return the call of a request; None for an intruder's request."""
    parsed = parse(payload)
    read = None if parsed is None else read_task(parsed.body)
    return None if read is None else history.calls.get(read[0].number)


def final_body(number: int, execution: int, payload: bytes) -> list[bytes]:
    """Return the body of a reply, or its end after partials."""
    return [_NEWLINE.join(final_frames(number, execution, payload))]


def partial_body(number: int, execution: int, index: int) -> list[bytes]:
    """Return a partial reply."""
    return [partial_frames(number, execution, index)[0] + _NEWLINE]


def read_reply(body: bytes) -> list[bytes]:
    """Split a reply: the labels of the partials, the label of the final, the payload."""
    return body.split(_NEWLINE)


# --- calls ----------------------------------------------------------------------------------------
def probe(knobs: ScalabilityKnobs, client: str, number: int, timeout_s: float) -> CallPlan:
    """Return a call that must be answered once faults have ended."""
    return plain_call(client, number, timeout_s, service_s=min(knobs.service_s, 0.001))


def may_be_endless(client: SpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
    """Whether a call may have no deadline: its client must resend it until it is answered."""
    return client.is_persistent and idempotent and behaviour in ANSWERING
