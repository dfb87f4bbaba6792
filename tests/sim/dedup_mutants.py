"""Broken deduplicating services: each breaks one rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from requite.dedup.engine import DedupEngine
from requite.dedup.entries import State
from requite.dedup.inputs import Found
from requite.dedup.records import Kind


class ForgetsReplies(DedupEngine):
    """Stores no reply, so every retry runs again."""

    def _settle(self, entry: Any, now: float) -> None:
        self._entries.remove(entry)
        self._segments.leave(entry)


class RunsWhatRuns(DedupEngine):
    """Runs a retry in parallel with the running handler instead of waiting for it."""

    def _asked(self, event: Any, now: float) -> None:
        entry = self._entries.get(event.key)
        if entry is not None and entry.state is State.RUNNING:
            event = event._replace(key=event.key + b"'")
        super()._asked(event, now)


class StartsBeforeItIsNoted(DedupEngine):
    """Starts a handler before its BEGUN record is on disk."""

    def _begin(self, event: Any, now: float) -> None:
        super()._begin(event, now)
        entry = self._entries.get(event.key)
        if entry is not None and entry.state is State.BEGINNING:
            self._run(entry)


class AnswersBeforeItIsStored(DedupEngine):
    """Sends a reply before it is on disk, where a power cut can still lose it."""

    def _end(self, entry: Any, outcome: Any, now: float) -> None:
        super()._end(entry, outcome, now)
        if entry.state is State.ENDING:
            self._answer(entry, outcome)
            entry.owner = object()
            self._tokens[entry.owner] = entry

    def handle(self, events: Any, now: float) -> Any:
        return [each for each in super().handle(events, now) if not _is_made_up(each)]


def _is_made_up(effect: Any) -> bool:
    return type(getattr(effect, "token", None)) is object


class ForgetsWhatHadBegun(DedupEngine):
    """Ignores BEGUN records after a restart, so requests without a reply count as never run."""

    def __init__(self, *given: Any, found: Iterable[Found] = (), **options: Any) -> None:
        ended = (each for each in found if each.record.kind is not Kind.BEGUN)
        super().__init__(*given, found=ended, **options)


class AnswersWithTheLastReply(DedupEngine):
    """Answers a retry with the reply that was replayed before."""

    _last: Any = None

    def _replay(self, token: Any, outcome: Any) -> None:
        last, self._last = self._last, outcome
        super()._replay(token, last or outcome)


class NeverExpires(DedupEngine):
    """Keeps replies beyond the retention window."""

    def _expire(self, now: float) -> None:
        """Expire nothing."""


class KeepsTokens(DedupEngine):
    """Never forgets the tokens of requests."""

    def _forget(self, entry: Any, now: float) -> None:
        super()._forget(entry, now)
        self._tokens[("left", entry.key)] = entry
