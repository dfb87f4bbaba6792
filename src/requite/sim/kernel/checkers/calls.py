"""Check what a client guarantees to its user: I1, I2, I5, I11, and truthful errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from requite.errors import CallError, Poisoned
from requite.request import Partial, Reply
from requite.sim.kernel.history import Call, Checker, Execution, History, Trace

# The clock of a run is exact, but timers fire late by design: by `_TIMER_SLACK_S` of the host, and
# by `sweep._SPACING_S` of the engine for each call that a sweep visits.
_TIMER_SLACK_S: Final = 0.005

_MANAGEMENT: Final = "mmi."


class EndsOnce(Checker):
    """Each call ends exactly once, and in time."""

    invariant = "I1"
    sentence = (
        "every accepted call ends exactly once: a final reply or a typed error, within its "
        "deadline plus one heartbeat period"
    )

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check the end of a call."""
        if call.ended_at is not None:
            self.violate(f"{call} ended at {call.ended_at:.4f} s, and again with {outcome!r}")
        late_s = self.history.world.now - call.due_at - call.frozen_s
        if late_s > self.knobs.ending_late_s + _TIMER_SLACK_S:
            self.violate(f"{call} ended {late_s:.3f} s after its deadline, with {outcome!r}")

    def partial(self, call: Call, partial: Partial) -> None:
        """Check that no partial follows the end of its call."""
        if call.ended_at is not None:
            self.violate(f"{call} ended at {call.ended_at:.4f} s, but got {partial!r} after that")

    def finished(self) -> None:
        """Check that every call has ended."""
        for call in self.history.open.values():
            self.violate(f"{call} to {call.service} never ended; it was due at {call.due_at:.4f} s")


class OwnReply(Checker):
    """Requests and replies name their call, and carry its payload unchanged."""

    invariant = "I2"
    sentence = "no reply reaches a call that did not ask for it"

    def partial(self, call: Call, partial: Partial) -> None:
        """Check a partial reply."""
        for frame in partial.frames:
            self._check_label(call, frame, b"part")

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check a final reply, and the partials that were joined in front of it."""
        if not isinstance(outcome, Reply):
            return
        if call.service.startswith(_MANAGEMENT):
            self._check_management(call, outcome)
            return
        *parts, label, payload = outcome.frames if len(outcome.frames) > 1 else (b"", b"")
        for frame in parts:
            self._check_label(call, frame, b"part")
        if label.startswith(b"requite-error "):
            return
        self._check_label(call, label, b"final")
        if payload != call.payload:
            what = f"{len(payload)} bytes returned, {len(call.payload)} sent"
            self.violate(f"{call}: its payload was changed: {what}")

    def _check_management(self, call: Call, reply: Reply) -> None:
        """Check the broker's own reply: a code, or JSON (8/MMI). The calls ask for a service that
        does not exist."""
        codes = {"mmi.service": b"404", "mmi.nothing": b"501"}
        expected = codes.get(call.service, reply.frames[0])
        if len(reply.frames) != 1 or reply.frames[0] != expected:
            self.violate(f"{call} to {call.service} got {reply.frames!r}")
        elif call.service not in codes:
            json.loads(reply.frames[0])

    def execution_started(self, execution: Execution) -> None:
        """Check that the handler got the request unchanged."""
        call = execution.call
        if execution.payload != call.payload:
            self.violate(f"{call}: its payload was changed on the way to {execution}")
        if execution.key != call.key:
            self.violate(f"{call}: {execution} got the key {execution.key!r}, not {call.key!r}")

    def _check_label(self, call: Call, label: bytes, kind: bytes) -> None:
        words = label.split()
        if words[:2] != [kind, b"%d" % call.number]:
            self.violate(f"{call} got {label!r} as its {kind.decode()}")


class PartialsInOrder(Checker):
    """All partials come from one execution, in order, without a gap, and before the final."""

    invariant = "I5"
    sentence = "partial indices are contiguous; none after the final"

    def passed_on(self, trace: Trace, facts: Mapping[str, Any]) -> None:
        """Check the index that the broker gives to a partial."""
        if facts["index"] != trace.partials:
            due = trace.partials
            self.violate(f"{trace}: the broker sends partial {facts['index']}, but {due} is due")

    def partial(self, call: Call, partial: Partial) -> None:
        """Check the index, and the label that the handler wrote into the partial."""
        due = len(call.partials)
        if partial.index != due:
            self.violate(f"{call}: got partial {partial.index}, expected {due}")
        self._check_sequence(call, [*_labels(call.partials), *partial.frames])

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check that the partials are complete, and from the execution that sent the final."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        *joined, label, _ = outcome.frames
        labels = [*_labels(call.partials), *joined]
        self._check_sequence(call, labels)
        words = label.split()
        if words[0] == b"final" and labels and labels[0].split()[2] != words[2]:
            self.violate(f"{call}: {labels[0]!r} and {label!r} are from different executions")
        if call.partials and joined:
            self.violate(f"{call}: some partials were delivered, others joined to the final")

    def _check_sequence(self, call: Call, labels: Sequence[bytes]) -> None:
        words = [label.split() for label in labels]
        for index, word in enumerate(words):
            if word[2:] != [words[0][2], b"%d" % index]:
                self.violate(f"{call}: partial {index} is {labels[index]!r}")
                return


class NeverRepeated(Checker):
    """A request that is not idempotent reaches a handler at most once.

    MDP 0.1 and 0.2 cannot tell a broker that a request is not idempotent: there the rule binds only
    the client.
    """

    invariant = "I11"
    sentence = "a non-idempotent request is never re-sent once it may have run"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._given_back: Counter[Call] = Counter()

    def execution_started(self, execution: Execution) -> None:
        """Check each start of a handler."""
        call = execution.call
        if not call.idempotent and call.carries_idempotency and len(call.executions) > 1:
            self.violate(f"{call} is not idempotent, but starts again as {execution}")

    def accepted(self, trace: Trace) -> None:
        """Check each attempt that a broker accepts."""
        call = trace.call
        if not call.idempotent and call.executions:
            self.violate(f"{call} is not idempotent and has run, but is sent again")
        tries = call.sent - self._given_back[call]
        if tries > call.tries_max:
            self.violate(f"{call} is sent {tries} times; at most {call.tries_max} are allowed")

    def answered(self, trace: Trace | None, facts: Mapping[str, Any]) -> None:
        """Count requests that a broker returns when it shuts down: they do not count as attempts
        ([client-drain])."""
        if trace is not None and facts["status"] == "SHUTTING_DOWN":
            self._given_back[trace.call] += 1


class HonestErrors(Checker):
    """A call whose error says that it did not run has not run, and never runs later."""

    invariant = "may_have_executed"
    sentence = "it is False only where the request provably never reached a handler"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._never_ran: dict[Call, CallError] = {}

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check that a call whose error says so has not run."""
        if not isinstance(outcome, CallError):
            return
        if not outcome.may_have_executed:
            self._never_ran[call] = outcome
            if call.executions:
                self.violate(f"{call} ran as {call.executions[0]}, but ends with {outcome!r}")
        if isinstance(outcome, Poisoned) and not str(outcome):
            self.violate(f"{call} is poisoned, but its error gives no reason")

    def execution_started(self, execution: Execution) -> None:
        """Check that the call did not end earlier with an error that says it did not run."""
        error = self._never_ran.get(execution.call)
        if error is not None:
            self.violate(f"{execution.call} ended with {error!r}, but {execution} starts")


def _labels(partials: Sequence[Sequence[bytes]]) -> list[bytes]:
    return [frame for frames in partials for frame in frames]


class LosesNothing(Checker):
    """In a run without faults every call gets its reply, at the first attempt."""

    invariant = "lossless"
    sentence = "in a run without faults every call gets its reply"

    def ended(self, call: Call, outcome: Reply | CallError) -> None:
        """Check the end of a call; `runs_at_once` is None where attempts are not counted."""
        knobs = self.knobs
        if not knobs.lossless or call.cancelled:
            return
        runs = len(call.executions)
        if not isinstance(outcome, Reply):
            self.violate(f"{call} ends with {outcome!r}, in a run without faults")
        elif knobs.runs_at_once and (outcome.attempts != 1 or not 1 <= runs <= knobs.runs_at_once):
            self.violate(f"{call} took {outcome.attempts} attempts and ran {runs} times")
