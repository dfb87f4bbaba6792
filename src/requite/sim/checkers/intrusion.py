"""I13: whatever strangers send, no process ends and no honest peer is made to pay for it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from requite.sim.history import Checker
from requite.sim.process import Process

_SLACK_S: Final = 0.005


class NobodyNotices(Checker):
    """No exception leaves an engine, a framing or a host; nobody honest is sent away."""

    invariant = "I13"
    sentence = "garbage bytes never end a loop or a process"

    def process_failed(self, process: Process, trace: str) -> None:
        """Check what ends a process: never an exception."""
        self.violate(f"{process.name} ends with an exception:\n{trace}")

    @cached_property
    def _silence_s(self) -> dict[str, float]:
        silence_s: dict[str, float] = self.knobs.silence_s
        return silence_s

    def gave_up_on_broker(self, name: str, reason: str, silent_s: float) -> None:
        """Check why a client or worker leaves its broker; `silent_s` is infinite for one that has
        never said anything, and with which no interval is agreed upon yet."""
        if "broke the protocol" in reason:
            self.violate(f"{name} leaves its broker, which is honest: {reason}")
        if "nothing came" in reason and silent_s < self._silence_s[name] - _SLACK_S:
            self.violate(f"{name} counts its broker as gone, but heard it {silent_s:.3f} s ago")

    def expelled(self, process: Process, reason: str) -> None:
        """Check who is sent away."""
        self.violate(f"{process.name}, which is honest, is sent away: {reason}")
