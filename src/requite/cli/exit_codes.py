"""Exit codes and their meanings: one table for the code, the help and the docs."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from requite.cli.failures import is_unsent
from requite.errors import (
    BadRequest,
    CallError,
    CallTimeout,
    Cancelled,
    ConfigurationError,
    Denied,
    LakeError,
    LocalViolation,
    NoService,
    Overloaded,
    PairFailed,
    Poisoned,
    RemoteFailure,
    RemoteViolation,
    RequiteError,
    SparkFailed,
    StorageError,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
    WorkerLost,
)


class ExitCode(IntEnum):
    """How a run of the command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TIMEOUT = 3
    UNAVAILABLE = 4
    NO_CONNECTION = 5
    LOST = 6
    CANNOT_LISTEN = 7
    INTERNAL = 70
    INTERRUPTED = 130
    STOPPED = 143


MEANING: Final[dict[ExitCode, str]] = {
    ExitCode.OK: "success: the reply arrived, or the broker or worker drained",
    ExitCode.FAILED: "a failed, refused or denied request; or a check, a pair or Spark failed",
    ExitCode.USAGE: "invalid arguments; nothing was done",
    ExitCode.TIMEOUT: "no reply in time; the message says whether the request may have run",
    ExitCode.UNAVAILABLE: "no worker, or a full queue; the message says whether it may have run",
    ExitCode.NO_CONNECTION: "no connection, a lost connection, or a peer of another protocol",
    ExitCode.LOST: "the request was lost with its worker, or cancelled; it may have run",
    ExitCode.CANNOT_LISTEN: "cannot bind the address",
    ExitCode.INTERNAL: "a bug in requite; -v prints the traceback",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C (broker and worker: a second one) before it finished",
    ExitCode.STOPPED: "stopped by SIGTERM (broker and worker: a second one) before it finished",
}

_BY_ERROR: Final[tuple[tuple[type[RequiteError], ExitCode], ...]] = (
    (CallTimeout, ExitCode.TIMEOUT),
    (NoService, ExitCode.UNAVAILABLE),
    (Overloaded, ExitCode.UNAVAILABLE),
    (BadRequest, ExitCode.FAILED),
    (RemoteFailure, ExitCode.FAILED),
    (Denied, ExitCode.FAILED),
    (WorkerLost, ExitCode.LOST),
    (Poisoned, ExitCode.LOST),
    (UnknownTicket, ExitCode.FAILED),
    (StoreUnavailable, ExitCode.UNAVAILABLE),
    (Cancelled, ExitCode.LOST),
    (TransportError, ExitCode.NO_CONNECTION),
    (RemoteViolation, ExitCode.NO_CONNECTION),
    (ConfigurationError, ExitCode.USAGE),
    (LocalViolation, ExitCode.USAGE),
    (StorageError, ExitCode.USAGE),
    (LakeError, ExitCode.FAILED),
    (SparkFailed, ExitCode.FAILED),
    (PairFailed, ExitCode.FAILED),
    (CallError, ExitCode.FAILED),
)


def exit_code_of(error: RequiteError) -> ExitCode:
    """Return the exit code of an error."""
    if is_unsent(error):
        return ExitCode.NO_CONNECTION
    matching = (code for kind, code in _BY_ERROR if isinstance(error, kind))
    return next(matching, ExitCode.INTERNAL)


def table() -> str:
    """Return the table as lines of text, for `--help`."""
    return "\n".join(f"  {code:>3}  {MEANING[code]}" for code in ExitCode)
