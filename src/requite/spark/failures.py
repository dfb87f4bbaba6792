"""Converts Spark's failures to errors of requite: one sentence instead of stack traces."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from requite import errors
from requite.errors import ConfigurationError, LakeError, RequiteError, SparkBusy, SparkFailed

TRIES_MAX: Final = 3

_log: Final = logging.getLogger("requite.spark")

P = ParamSpec("P")
T = TypeVar("T")

# Spark passes on errors of requite from its processes as text.
_OURS: Final = re.compile(r"^(?:\w+\.)*errors\.(\w+): (.+)$", re.MULTILINE)

_SETTING: Final = re.compile(r"\[INVALID_CONF_VALUE\S*\] (.+?)(?: SQLSTATE|$)", re.MULTILINE)

_BUSY: Final = SparkBusy(
    "Spark could not reach one of its processes in time, because the machine is too busy; the"
    " lake is unchanged: run again"
)
_KNOWN: Final = {
    "No space left on device": LakeError(
        "no space is left on the device, for the lake or for Spark's temporary files"
        " (spark.local.dir); the lake is unchanged: free some space, and run again"
    ),
    "Permission denied": LakeError(
        "a file of the lake or of Spark cannot be read or written (Permission denied); the"
        " lake is unchanged: correct the permissions, and run again"
    ),
    "OutOfMemoryError": SparkFailed(
        "Spark ran out of memory; the lake is unchanged: give Spark more"
        " (spark.driver.memory), and run again"
    ),
    "CANNOT_OPEN_SOCKET": _BUSY,
    # The same failure, reported by Java at the other end of the connection.
    "SocketTimeoutException: Accept timed out": _BUSY,
    "Python worker failed to connect back": _BUSY,
}
_LOST: Final = (
    "the connection to Spark was lost: its process has ended, perhaps because it ran out of"
    " memory; the lake is unchanged: run again"
)


@contextmanager
def as_sentences() -> Iterator[None]:
    """Raise known failures of Spark as errors of requite; pass on all others unchanged."""
    try:
        yield
    except RequiteError:
        raise
    except Exception as error:
        known = sentence_of(error)
        if known is None:
            raise
        raise known from error


def sentence_of(error: Exception) -> RequiteError | None:
    """Return the error of requite for a failure of Spark; None if it is not a known one."""
    text = str(error)
    for name, words in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, RequiteError):
            return kind(words.strip())
    for words, known in _KNOWN.items():
        if words in text:
            return type(known)(str(known))
    if found := _SETTING.search(text):
        return ConfigurationError(f"Spark rejects a setting: {found[1]}")
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return SparkFailed(_LOST)
    return None


def again_if_busy(run: Callable[P, T]) -> Callable[P, T]:
    """Decorate a repeatable function: run it up to three times while it raises `SparkBusy`."""

    @wraps(run)
    def tried(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES_MAX - 1):
            try:
                return run(*args, **kwargs)
            except SparkBusy:
                _log.warning(
                    "Spark could not reach one of its processes in time, because the machine is "
                    "too busy; trying again"
                )
        return run(*args, **kwargs)

    return tried
