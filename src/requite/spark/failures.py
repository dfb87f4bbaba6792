"""What Spark says when something fails, as one error of ours: a sentence instead of pages."""

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

# What a function of ours has raised in a process of Spark's comes back as text.
_OURS: Final = re.compile(r"^(?:\w+\.)*errors\.(\w+): (.+)$", re.MULTILINE)

_SETTING: Final = re.compile(r"\[INVALID_CONF_VALUE\S*\] (.+?)(?: SQLSTATE|$)", re.MULTILINE)

_BUSY: Final = SparkBusy(
    "Spark could not reach one of its processes in time, on a machine that is too busy; nothing of "
    "this run counts: run again"
)
_KNOWN: Final = {
    "No space left on device": LakeError(
        "no space is left on the device, for the lake or for what Spark puts aside "
        "(spark.local.dir); nothing of this run counts: make room, and run again"
    ),
    "Permission denied": LakeError(
        "the system refuses to read or write a file of the lake or of Spark (Permission denied); "
        "nothing of this run counts"
    ),
    "OutOfMemoryError": SparkFailed(
        "Spark has run out of memory; nothing of this run counts: give it more "
        "(spark.driver.memory), and run again"
    ),
    "CANNOT_OPEN_SOCKET": _BUSY,
    # What Java says of the same, at the other end of the connection.
    "SocketTimeoutException: Accept timed out": _BUSY,
    "Python worker failed to connect back": _BUSY,
}
_LOST: Final = (
    "the connection to Spark is lost: its process has ended, perhaps for lack of memory; nothing "
    "of this run counts: run again"
)


@contextmanager
def as_sentences() -> Iterator[None]:
    """Raise what is known of Spark's failures as errors of ours; the others pass as they are."""
    try:
        yield
    except RequiteError:
        raise
    except Exception as error:
        told = sentence_of(error)
        if told is None:
            raise
        raise told from error


def sentence_of(error: Exception) -> RequiteError | None:
    """Return the error of ours that stands for one of Spark's; None for one that nobody expects."""
    text = str(error)
    for name, words in _OURS.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, RequiteError):
            return kind(words.strip())
    for words, told in _KNOWN.items():
        if words in text:
            return type(told)(str(told))
    if found := _SETTING.search(text):
        return ConfigurationError(f"a setting of Spark cannot work: {found[1]}")
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return SparkFailed(_LOST)
    return None


def again_if_busy(run: Callable[P, T]) -> Callable[P, T]:
    """Decorate what may simply be run again: do so, three times in all, while it is `SparkBusy`."""

    @wraps(run)
    def tried(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES_MAX - 1):
            try:
                return run(*args, **kwargs)
            except SparkBusy:
                _log.warning(
                    "Spark could not reach one of its processes in time, on a machine that is too "
                    "busy; the run is tried again"
                )
        return run(*args, **kwargs)

    return tried
