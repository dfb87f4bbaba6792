"""Whether a request queue is what its manager wants it to be, as the management API tells.

RabbitMQ refuses to declare a queue that is there with other arguments. What it does not tell then
is which policies hold besides: an operator's policy may shorten what arguments allow, and have a
queue deleted that nobody uses. So a queue is read back, and looked at with each listing: policies
are told of with RabbitMQ's statistics, some seconds late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_LIMITS: Final = {
    "delivery-limit": "limits.delivery_limit",
    "message-ttl": "limits.message_ttl",
    "max-length": "limits.queue_length",
}
"""What limits a queue, as policies name it (arguments have `x-` before it), and the setting."""

_REJECTS: Final = "drop-head"  # what is done at the limit of length where nothing else is said


class UnsafeQueue(Exception):
    """A queue loses requests, or has them end in silence: nothing may be bound to it."""


class Flaw(NamedTuple):
    """What is wrong with a queue. Requests would be lost, or end in silence, in a `fatal` one."""

    text: str
    fatal: bool = False


def flaws_of(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Flaw]:
    """Compare a queue, as the management API tells of it, with the arguments that it should have.

    Of a limit that both an argument and policies set, the lower one holds; other arguments count
    more than policies ("Policies", RabbitMQ's documentation).
    """
    return [Flaw(f"the queue {name} {text}", fatal) for text, fatal in _flaws(found, wanted)]


def _flaws(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Flaw]:
    arguments = found.get("arguments") or {}
    policy = found.get("effective_policy_definition") or {}
    if found.get("type") != wanted["x-queue-type"]:
        kind = found.get("type")
        yield Flaw(
            f"is of type {kind!r}: it has to be a quorum queue, which counts deliveries", True
        )
    letters = arguments.get("x-dead-letter-exchange", policy.get("dead-letter-exchange"))
    if letters != wanted["x-dead-letter-exchange"]:
        where = wanted["x-dead-letter-exchange"]
        yield Flaw(f"has the dead letter exchange {letters!r}: it has to be {where!r}", True)
    for limit, setting in _LIMITS.items():
        yield from _limit_flaws(limit, setting, arguments, policy, wanted)
    if "expires" in {*policy, *(each.removeprefix("x-") for each in arguments)}:
        yield Flaw("is deleted by RabbitMQ, with what is in it, while nobody uses it (expires)")
    overflow = arguments.get("x-overflow", policy.get("overflow", _REJECTS))
    if overflow != _REJECTS:
        yield Flaw(f"has overflow {overflow!r}: requests beyond limits.queue_length are refused")


def _limit_flaws(
    limit: str,
    setting: str,
    arguments: Mapping[str, Any],
    policy: Mapping[str, Any],
    wanted: Mapping[str, Any],
) -> Iterator[Flaw]:
    held = [each for each in (arguments.get(f"x-{limit}"), policy.get(limit)) if each is not None]
    holds, wants = min(held, default=None), wanted.get(f"x-{limit}")
    if holds == wants:
        return
    by = f"by the policy in force, {limit}" if holds == policy.get(limit) else f"x-{limit}"
    has = "none" if holds is None else f"{holds} ({by})"
    wants_text = "none" if wants is None else str(wants)
    is_missing = limit == "delivery-limit" and holds is None
    yield Flaw(f"has {has} where {setting} asks for {wants_text}", is_missing)
