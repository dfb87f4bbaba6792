"""The sentence below the figures: what is wrong with the broker, or what has just happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from requite.cli.live.columns import Cell, Tone
from requite.cli.live.polling import Seen
from requite.protocols.majordomo.reading import Reading

_SILENT_S: Final = 1.5
_NEWS_ANSWERS: Final = 30


class _Shown(logging.Handler):
    """Gives log lines to `show`, in the format of another handler."""

    def __init__(self, show: Callable[[str], object], writer: logging.Handler) -> None:
        super().__init__()
        self._show: Final = show
        self.setFormatter(writer.formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        self._show(self.format(record))


class Notices:
    """Chooses the sentence. News is shown for the next 30 answers."""

    def __init__(self) -> None:
        self._trouble = ""
        self._news = ""
        self._news_left = 0
        self._waited_s = 0.0
        self._before: Reading | None = None

    def trouble(self, text: str) -> None:
        """Show why the broker did not answer, until its next answer."""
        self._trouble = text

    def waited(self, waited_s: float) -> None:
        """Set for how many seconds an answer has been outstanding; 0: none is."""
        self._waited_s = waited_s

    def answered(self, seen: Seen) -> None:
        """Record an answer: clear the trouble, and announce a restart or a takeover."""
        reading, before = seen.figures.now, self._before
        self._trouble, self._waited_s, self._before = "", 0.0, reading
        self._news_left = max(0, self._news_left - 1)
        if before is not None and seen.is_other:
            roles = [each.pair["role"] if each.pair else None for each in (before, reading)]
            self._tell(
                f"the {roles[1]} of the pair serves now"
                if roles[1] is not None and roles[0] != roles[1]
                else "the broker was restarted"
            )

    def _tell(self, what: str) -> None:
        self._news = f"{datetime.now():%H:%M:%S}  {what}: figures begin anew"
        self._news_left = _NEWS_ANSWERS

    def log(self, line: str) -> None:
        """Show a log line."""
        self._news, self._news_left = line, _NEWS_ANSWERS

    @contextmanager
    def taking_logs(self) -> Iterator[None]:
        """Show log lines here instead of writing them to stderr."""
        root = logging.getLogger()
        writers = root.handlers[:]
        root.handlers[:] = [_Shown(self.log, writer) for writer in writers]
        try:
            yield
        finally:
            root.handlers[:] = writers

    @property
    def is_lost(self) -> bool:
        """Whether the broker answered, and does not any more."""
        return bool(self._trouble) and self._before is not None

    def cell(self) -> Cell:
        """Return the sentence."""
        if self._trouble:
            return Cell(f"{self._trouble}; asking again", Tone.ERROR)
        if self._waited_s > _SILENT_S:
            text = f"no answer for {self._waited_s:.0f} s; the client reconnects by itself"
            return Cell(text, Tone.WARNING)
        if self._before is None:
            return Cell("connecting …", Tone.QUIET)
        return Cell(self._news if self._news_left else "", Tone.WARNING)
