"""Check services that run each request once: I4, and the reply that a repetition may get (I2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.errors import CallError
from requite.request import Reply, Status
from requite.sim.kernel.checkers.calls import OwnReply
from requite.sim.kernel.history import Call, Checker, Execution, History
from requite.sim.majordomo.checkers import CHECKERS

if TYPE_CHECKING:
    from requite.sim.dedup.workers import DedupWorker

_SLACK_S: Final = 0.001


@dataclass(slots=True, eq=False)
class Effect:
    """One run of a handler for a key. `status` is None until it ends.

    `life` counts the starts of its worker. `is_known`: a caller has its reply.
    """

    key: bytes
    life: int
    began_at: float
    execution: Execution | None = None
    status: Status | None = None
    ended_at: float = 0.0
    is_known: bool = False


class OnceOnly(Checker):
    """A key has one effect within its window.

    More are allowed after a failure if failures are not stored, and after a crash during the
    handler if it is configured to run again; never after a caller got the reply.
    """

    invariant = "I4"
    sentence = "effects per key <= 1 inside the dedup window, and duplicates get the stored reply"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._by_key: dict[bytes, list[Effect]] = {}
        self._running: dict[Any, Effect] = {}
        self._by_serial: dict[int, Effect] = {}
        self._begun: Effect | None = None

    def effect_began(self, token: Any, key: bytes, worker: DedupWorker) -> None:
        """Check that no earlier effect forbids this one."""
        now = self.history.world.now
        effect = Effect(key, worker.life, now)
        for former in self._by_key.setdefault(key, []):
            if self._forbids(former, effect):
                self.violate(
                    f"{key!r} runs again on {worker.name}: it began at {former.began_at:.4f} s, "
                    f"ended at {former.ended_at:.4f} s as {former.status!r}, in start "
                    f"{former.life} of {worker.life}"
                )
        self._by_key[key].append(effect)
        self._running[token] = self._begun = effect

    def _forbids(self, former: Effect, effect: Effect) -> bool:
        if former.status is None and former.life == effect.life:
            return True  # two at a time
        over_at = former.ended_at or former.began_at
        if effect.began_at >= over_at + self.knobs.window_s - _SLACK_S:
            return False
        if former.status is Status.CANCELLED:
            return False
        if former.status is Status.FAILED and not self.knobs.store_failures:
            return False
        was_cut_off = former.life != effect.life and not former.is_known
        return not (was_cut_off and self.knobs.in_doubt == "run")

    def execution_started(self, execution: Execution) -> None:
        """Match an execution with its effect."""
        if self._begun is not None:
            self._begun.execution = execution
            self._by_serial[execution.serial] = self._begun
            self._begun = None

    def effect_ended(self, token: Any, status: Status) -> None:
        """Record the end of a handler."""
        effect = self._running.pop(token, None)
        if effect is not None:
            effect.status, effect.ended_at = status, self.history.world.now

    def ended(self, _call: Call, outcome: Reply | CallError) -> None:
        """Record the effect whose reply a caller has; it must be the last effect of its key, or
        within its window."""
        if not isinstance(outcome, Reply) or len(outcome.frames) < 2:
            return
        words = outcome.frames[-2].split()
        effect = self._by_serial.get(int(words[2])) if words[0] == b"final" else None
        if effect is not None:
            effect.is_known = True


class KeysReply(OwnReply):
    """A repetition gets only a reply to a call with the same key."""

    def _check_label(self, call: Call, label: bytes, kind: bytes) -> None:
        words = label.split()
        asked = self.history.calls.get(int(words[1])) if words[:1] == [kind] else None
        if asked is None or (asked is not call and (not call.key or asked.key != call.key)):
            self.violate(f"{call} with the key {call.key!r} got {label!r} as its {kind.decode()}")


DEDUP_CHECKERS: Final[tuple[type[Checker], ...]] = (
    *(KeysReply if checker is OwnReply else checker for checker in CHECKERS),
    OnceOnly,
)
