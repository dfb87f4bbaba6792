"""Calls that end when their time is up, and tell what stood in the way.

What that was is known a moment after a call has begun, and on a busy machine the moment may be
longer than the time that a test gives the call. So a call that knew too little is made again, with
more time: it is as quick as may be, and still fails where the right words never come.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from requite.errors import CallError

_TIMEOUTS_S: Final = (0.2, 2.0, 15.0)


def failure(kind: type[CallError], words: str, call: Callable[[float], object]) -> CallError:
    """Return the error of a kind, with words that a pattern finds, with which `call(timeout)` ends.

    Raises `AssertionError` where the call ends otherwise, however much time it has.
    """
    seen: list[CallError] = []
    for timeout in _TIMEOUTS_S:
        try:
            call(timeout)
        except CallError as error:
            seen.append(error)
            if _is(error, kind, words):
                return error
        else:
            break
    raise AssertionError(_instead(kind, words, seen))


async def failure_on_loop(
    kind: type[CallError], words: str, call: Callable[[float], Awaitable[object]]
) -> CallError:
    """Do the same with a coroutine function."""
    seen: list[CallError] = []
    for timeout in _TIMEOUTS_S:
        try:
            await call(timeout)
        except CallError as error:
            seen.append(error)
            if _is(error, kind, words):
                return error
        else:
            break
    raise AssertionError(_instead(kind, words, seen))


def _is(error: CallError, kind: type[CallError], words: str) -> bool:
    return isinstance(error, kind) and re.search(words, str(error)) is not None


def _instead(kind: type[CallError], words: str, seen: list[CallError]) -> str:
    ends = [repr(error) for error in seen] or ["a reply"]
    return f"no {kind.__name__} with {words!r}, but {'; '.join(ends)}"
