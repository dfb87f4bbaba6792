"""Log warnings for operators: rate-limited, printable, of limited length."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 1.0
# Kinds are fixed words, never a peer's text; the bound guards against a bug in that.
_KINDS_MAX: Final = 256
# Texts may quote a peer, or the exception of a handler, which has no limit.
_TEXT_SIZE_MAX: Final = 1000


def printable(text: str) -> str:
    """Escape control characters, which text from peers may contain."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class Warnings:
    """Log at most one line per kind and second; the next line counts those left out."""

    __slots__ = ("_clock", "_kinds", "_logger")

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # kind: (quiet until, left out)

    def warn(self, kind: str, text: str) -> None:
        """Log `text` as a warning of this kind, or count it as left out."""
        now = self._clock()
        quiet_until, left_out = self._kinds.get(kind, (now, 0))
        if now < quiet_until:
            self._kinds[kind] = (quiet_until, left_out + 1)
            return
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = (now + _INTERVAL_S, 0)
        if len(text) > _TEXT_SIZE_MAX:
            text = f"{text[:_TEXT_SIZE_MAX]}… ({len(text)} characters)"
        suffix = f" ({left_out} more of this kind left out)" if left_out else ""
        self._logger.warning("%s: %s%s", kind, printable(text), suffix)
