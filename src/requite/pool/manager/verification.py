"""Compares request queues with their settings, by the management API.

RabbitMQ refuses to declare an existing queue with other arguments, but does not report policies: an
operator's policy can lower limits, and can delete an unused queue. So the manager reads a queue
back after its declaration, and checks it with each listing. Statistics show policies some seconds
late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_LIMITS: Final = {
    "delivery-limit": "limits.delivery_limit",
    "message-ttl": "limits.message_ttl",
    "max-length": "limits.queue_length",
}
"""Limits of a queue, as policies name them (arguments have the prefix `x-`), and the settings."""

_REJECTS: Final = "drop-head"  # the default


class UnsafeQueue(Exception):
    """A queue loses requests silently: it must not be bound."""


class Flaw(NamedTuple):
    """A fault of a queue; with a `fatal` one, requests would be lost silently."""

    text: str
    fatal: bool = False


def flaws_of(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Flaw]:
    """Compare a queue, as the management API reports it, with the arguments of its declaration.

    If an argument and a policy set the same limit, the lower one applies; other arguments override
    policies ("Policies", RabbitMQ's documentation).
    """
    return [Flaw(f"the queue {name} {text}", fatal) for text, fatal in _flaws(found, wanted)]


def _flaws(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Flaw]:
    arguments = found.get("arguments") or {}
    policy = found.get("effective_policy_definition") or {}
    if found.get("type") != wanted["x-queue-type"]:
        kind = found.get("type")
        yield Flaw(f"is of type {kind!r}: it must be a quorum queue, which counts deliveries", True)
    letters = arguments.get("x-dead-letter-exchange", policy.get("dead-letter-exchange"))
    if letters != wanted["x-dead-letter-exchange"]:
        where = wanted["x-dead-letter-exchange"]
        yield Flaw(f"has the dead letter exchange {letters!r}: it must be {where!r}", True)
    for limit, setting in _LIMITS.items():
        yield from _limit_flaws(limit, setting, arguments, policy, wanted)
    if "expires" in {*policy, *(each.removeprefix("x-") for each in arguments)}:
        yield Flaw("is deleted by RabbitMQ with its messages while it has no consumers (expires)")
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
