"""Assertions on the errors of calls that time out.

The error of such a call names the cause, for example a refused connection. The client learns the
cause shortly after the call begins, on a busy machine perhaps later than a short timeout. So these
functions repeat the call with longer timeouts until the error matches: they are fast in the usual
case, and fail if the expected error never comes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from requite.errors import CallError

_TIMEOUTS_S: Final = (0.2, 2.0, 15.0)


def failure(kind: type[CallError], words: str, call: Callable[[float], object]) -> CallError:
    """Return the error of `call(timeout)` that is a `kind` and whose text matches `words`, a regex.

    Raises `AssertionError` if the call returns, or if its error does not match at any timeout.
    """
    seen: list[CallError] = []
    for timeout in _TIMEOUTS_S:
        try:
            call(timeout)
        except CallError as error:
            seen.append(error)
            if _matches(error, kind, words):
                return error
        else:
            break
    raise AssertionError(_mismatch(kind, words, seen))


async def failure_on_loop(
    kind: type[CallError], words: str, call: Callable[[float], Awaitable[object]]
) -> CallError:
    """Return the matching error of a coroutine function, as `failure` does for a function."""
    seen: list[CallError] = []
    for timeout in _TIMEOUTS_S:
        try:
            await call(timeout)
        except CallError as error:
            seen.append(error)
            if _matches(error, kind, words):
                return error
        else:
            break
    raise AssertionError(_mismatch(kind, words, seen))


def _matches(error: CallError, kind: type[CallError], words: str) -> bool:
    return isinstance(error, kind) and re.search(words, str(error)) is not None


def _mismatch(kind: type[CallError], words: str, seen: list[CallError]) -> str:
    ends = [repr(error) for error in seen] or ["a reply"]
    return f"no {kind.__name__} with {words!r}, but {'; '.join(ends)}"
