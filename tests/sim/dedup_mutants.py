"""Stores of replies that are broken on purpose, each in one rule."""

from __future__ import annotations

from typing import Any

from requite.dedup.engine import DedupEngine
from requite.dedup.entries import State
from requite.dedup.records import Kind


class ForgetsReplies(DedupEngine):
    """Keep nothing: every repetition runs."""

    def _settle(self, entry: Any, now: float) -> None:
        self._entries.remove(entry)
        self._segments.leave(entry)


class RunsWhatRuns(DedupEngine):
    """Run a repetition beside the handler that it should wait for."""

    def _asked(self, event: Any, now: float) -> None:
        entry = self._entries.get(event.key)
        if entry is not None and entry.state is State.RUNNING:
            event = event._replace(key=event.key + b"'")
        super()._asked(event, now)


class StartsBeforeItIsNoted(DedupEngine):
    """Start handlers while the disk is still busy with that."""

    def _begin(self, event: Any, now: float) -> None:
        super()._begin(event, now)
        entry = self._entries.get(event.key)
        if entry is not None and entry.state is State.BEGINNING:
            self._run(entry)


class AnswersBeforeItIsStored(DedupEngine):
    """Give a reply away that a power cut may take back."""

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
    """Believe, after a restart, that what has no reply has not run."""

    def _restore(self, record: Any, *rest: Any) -> None:
        if record.kind is not Kind.BEGUN:
            super()._restore(record, *rest)


class AnswersWithTheLastReply(DedupEngine):
    """Mix up who has asked for what."""

    _last: Any = None

    def _replay(self, token: Any, outcome: Any) -> None:
        last, self._last = self._last, outcome
        super()._replay(token, last or outcome)


class NeverExpires(DedupEngine):
    """Keep replies for longer than their window."""

    def _expire(self, now: float) -> None:
        """Go on."""


class KeepsTokens(DedupEngine):
    """Remember who has asked."""

    def _forget(self, entry: Any, now: float) -> None:
        super()._forget(entry, now)
        self._tokens[("left", entry.key)] = entry
