"""Shrink a plan: find a smaller one that violates the same invariant.

A drawn plan has a dozen faults and a hundred calls; a violation needs one or two of each. `shrink`
removes everything else by delta debugging (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", 2002): faults, then calls, then processes. It simplifies the rest: shorter
faults, calls with default settings, probabilities of 0. It plays every candidate, so the result is
a plan that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from requite.errors import ConfigurationError
from requite.sim.kernel.plan import Plan, defaults_of, records_of

TRIES_MAX: Final = 2_000
_SHORTEST_S: Final = 0.01
_AFTER_LAST_S: Final = 1.0  # from the last call or fault to the end of the first phase

Item = TypeVar("Item")
Fails = Callable[[Plan], bool]
"""Plays a plan, and returns whether it violates the invariant of the first plan."""


class Shrunk(NamedTuple):
    """A plan that still fails, and the number of plans played to find it."""

    plan: Plan
    tries: int


def shrink(plan: Plan, fails: Fails, tries_max: int = TRIES_MAX) -> Shrunk:
    """Return the smallest plan found that `fails`, after at most `tries_max` plays.

    Raises `ConfigurationError` if the plan itself does not fail.
    """
    search = _Search(plan, fails, tries_max)
    if not search.take(plan):
        raise ConfigurationError(
            "the plan cannot be shrunk: when it was run again, it did not violate the invariant"
        )
    with suppress(_Exhausted):  # the smallest plan so far is the result
        search.run()
    return Shrunk(search.plan, search.tries)


def fewest(
    items: tuple[Item, ...], still_fails: Callable[[tuple[Item, ...]], bool]
) -> tuple[Item, ...]:
    """Return a small subset of the items that still fails: tries without all of them, without
    halves, quarters and so on, down to single items."""
    size = len(items)
    while size:
        start = 0
        while start < len(items):
            kept = items[:start] + items[start + size :]
            if still_fails(kept):
                items = kept
            else:
                start += size
        size = min(size, len(items)) // 2
    return items


class _Exhausted(Exception):
    """The limit of played plans is reached."""


class _Search:
    """The smallest failing plan so far, and the number of plans played."""

    def __init__(self, plan: Plan, fails: Fails, tries_max: int) -> None:
        self.plan = plan
        self.tries = 0
        self._fails = fails
        self._tries_max = tries_max

    def take(self, candidate: Plan) -> bool:
        """Play a plan; if it fails, keep it as the smallest so far."""
        if self.tries == self._tries_max:
            raise _Exhausted
        self.tries += 1
        if not self._fails(candidate):
            return False
        self.plan = candidate
        return True

    def run(self) -> None:
        """Repeat all steps until none finds a smaller plan."""
        before = None
        while before != self.plan:
            before = self.plan
            self._fewest(self.plan.faults, lambda plan, kept: plan._replace(faults=kept))
            self._fewest(self.plan.calls, _with_calls)
            self._fewest_processes()
            self._simplify_faults()
            self._simplify_calls()
            self._simplify_knobs()

    def _fewest(
        self, items: tuple[Item, ...], put: Callable[[Plan, tuple[Item, ...]], Plan]
    ) -> None:
        fewest(items, lambda kept: self.take(put(self.plan, kept)))

    def _fewest_processes(self) -> None:
        """Remove processes that no other process needs; without those, calls would never end."""
        for records in _lists(self.plan.knobs).values():
            for name in (record.name for record in records if hasattr(record, "name")):
                before = self.plan.knobs
                after = _without(before, name)
                if {need for need in _needs(before) if need[2] != name} <= _needs(after):
                    self.take(self.plan._replace(knobs=after))

    def _simplify_faults(self) -> None:
        for place in range(len(self.plan.faults)):
            while (fault := self.plan.faults[place]).duration_s > _SHORTEST_S:
                shorter = fault._replace(duration_s=fault.duration_s / 2)
                if not self.take(self.plan._replace(faults=_put(self.plan.faults, place, shorter))):
                    break

    def _simplify_calls(self) -> None:
        for place in range(len(self.plan.calls)):
            for name, value in _simpler_fields(self.plan.calls[place]):
                simpler = self.plan.calls[place]._replace(**{name: value})
                self.take(self.plan._replace(calls=_put(self.plan.calls, place, simpler)))

    def _simplify_knobs(self) -> None:
        for name in defaults_of(self.plan.knobs.__class__):
            value = getattr(self.plan.knobs, name)
            if name.endswith("_p") and isinstance(value, float) and value:
                self.take(_with_knob(self.plan, name, 0.0))
        last_s = max((each.at_s for each in (*self.plan.calls, *self.plan.faults)), default=0.0)
        if last_s + _AFTER_LAST_S < self.plan.knobs.faulty_s:
            self.take(_with_knob(self.plan, "faulty_s", last_s + _AFTER_LAST_S))


def _with_calls(plan: Plan, calls: tuple[Any, ...]) -> Plan:
    """Return a plan with only these calls; a call that followed a removed one gets its own time."""
    numbers = {call.number for call in calls}

    def starts_alone(call: Any) -> bool:
        follows = getattr(call, "follows", None)
        return follows is not None and follows not in numbers

    alone = (call._replace(follows=None) if starts_alone(call) else call for call in calls)
    return plan._replace(calls=tuple(alone))


def _with_knob(plan: Plan, name: str, value: Any) -> Plan:
    return plan._replace(knobs=replace(plan.knobs, **{name: value}))


def _lists(knobs: Any) -> dict[str, tuple[Any, ...]]:
    """Return the knobs that are lists of records: processes, and connections between them."""
    lists = {name: records_of(getattr(knobs, name)) for name in defaults_of(knobs.__class__)}
    return {name: records for name, records in lists.items() if records}


def _without(knobs: Any, process: str) -> Any:
    """Return knobs without a process, and without the connections that name it."""
    return replace(
        knobs,
        **{
            name: tuple(each for each in records if process not in _texts(each).values())
            for name, records in _lists(knobs).items()
        },
    )


def _needs(knobs: Any) -> set[tuple[str, str, str]]:
    """Return what fewer processes still need: each service, and both ends of connections."""
    return {
        (name, field, text)
        for name, records in _lists(knobs).items()
        for each in records
        for field, text in _texts(each).items()
        if field == "service" or "name" not in _texts(each)
    } | {(name, "", "") for name in _lists(knobs)}


def _texts(record: Any) -> dict[str, str]:
    values = ((field, getattr(record, field)) for field in defaults_of(record.__class__))
    return {field: value for field, value in values if type(value) is str}


def _put(items: Sequence[Item], place: int, item: Item) -> tuple[Item, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _simpler_fields(call: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a call that differ from their default, with the default, and a small
    payload."""
    for name, default in defaults_of(call.__class__).items():
        value = getattr(call, name)
        if isinstance(value, bytes) and len(value) > 1:
            yield name, value[:1]
        elif default in (None, "", 0, False) and value != default:
            yield name, default
