"""Coverage: which process did what, in which state, during which fault.

It is computed from the transcript of a run and from its plan, in the same way for each protocol.
A combination that a million seeds never meet has not been tested by them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from requite.sim.kernel.faults import Fault
from requite.sim.kernel.transcript import RUN, Entry

NO_FAULT: Final = "none"
HEALED: Final = "healed"
"""The second phase, after all faults have ended."""

_AFTER_S: Final = 1.0  # how long a fault counts at least: a reset takes no time, its effects do
_EXAMPLES: Final = 3
_NUMBER: Final = re.compile(r"-?\d+$")
_MESSAGE_TYPE: Final = re.compile(r"[A-Z]{2,}")
_CALL_END: Final = re.compile(r"call \d+ (?:gets|fails with (\w+))")


class Combination(NamedTuple):
    """What a process did: `process` is its role, `state` whether it had been restarted before.

    `event` is the type of a message that it sent, or what happened to it. `fault` is the kind of a
    fault that was in progress, `NO_FAULT` or `HEALED`.
    """

    process: str
    state: str
    event: str
    fault: str


def coverage(
    faults: Sequence[Fault], faulty_s: float, entries: Sequence[Entry]
) -> Counter[Combination]:
    """Count the combinations of a run, whose faults end at `faulty_s`.

    An event during several faults counts for each of them.
    """
    met: Counter[Combination] = Counter()
    starts: Counter[str] = Counter()
    kinds = {fault.kind for fault in faults}
    for entry in entries:
        words = entry.short.split(maxsplit=1)
        if entry.source == RUN or not words or words[0].rstrip(",") in kinds:
            continue
        if not entry.sink and words[0].startswith("start"):
            starts[entry.source] += 1
        process = _NUMBER.sub("", entry.source)
        state = "restarted" if starts[entry.source] > 1 else "first life"
        for fault in _in_progress(faults, faulty_s, entry.at_s):
            met[Combination(process, state, _event(entry, words[0]), fault)] += 1
    return met


def table(met: Mapping[Combination, int]) -> Iterator[str]:
    """Yield a line for each fault: how many of all events it met, and frequent ones it did not."""
    events: Counter[tuple[str, str, str]] = Counter()
    by_fault: dict[str, set[tuple[str, str, str]]] = {}
    for (process, state, event, fault), count in met.items():
        events[process, state, event] += count
        by_fault.setdefault(fault, set()).add((process, state, event))
    yield f"{len(met)} combinations: {len(events)} events of processes, {len(by_fault)} faults"
    yield f"{'fault':<20} {'met':>4}  not met"
    for fault in sorted(by_fault, key=lambda name: (name in (NO_FAULT, HEALED), name)):
        missed = [each for each, _ in events.most_common() if each not in by_fault[fault]]
        examples = "; ".join(f"{who} {event} ({state})" for who, state, event in missed[:_EXAMPLES])
        yield f"{fault:<20} {len(by_fault[fault]):>4}  {examples}".rstrip()


def _in_progress(faults: Sequence[Fault], faulty_s: float, at_s: float) -> Sequence[str]:
    if at_s >= faulty_s:
        return (HEALED,)
    kinds = dict.fromkeys(
        str(fault.kind)
        for fault in faults
        if fault.at_s <= at_s <= fault.at_s + max(fault.duration_s, _AFTER_S)
    )
    return tuple(kinds) or (NO_FAULT,)


def _event(entry: Entry, word: str) -> str:
    if entry.sink:
        kind = _MESSAGE_TYPE.match(word)
        return kind.group() if kind else f"message to {_NUMBER.sub('', entry.sink)}"
    ended = _CALL_END.match(entry.short)
    if ended:
        return ended.group(1) or "OK"
    return word.rstrip(":,")
