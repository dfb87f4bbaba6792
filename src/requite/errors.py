"""Every failure a user of requite can meet, on one screen.

    RequiteError
    ├── CallError                a call ended without the reply that was asked for
    │   ├── CallTimeout          the deadline passed
    │   ├── NoService            nobody serves what was asked for
    │   ├── Overloaded           a queue or the table of slots is full
    │   ├── RemoteFailure        a negative reply: the handler failed or refused
    │   ├── WorkerLost           the worker died with the request, which may not be run again
    │   ├── Poisoned             every worker that was given the request died with it
    │   ├── UnknownTicket        no request is kept under the ticket
    │   ├── StoreUnavailable     whoever keeps requests cannot write or read them now
    │   ├── Cancelled            the caller, or the closing of its client, gave the call up
    │   └── TransportError       no connection, or it broke and the request may not be sent again
    ├── ProtocolViolation
    │   ├── LocalViolation       *we* were asked to break the protocol: a bug, or bad arguments
    │   └── RemoteViolation      *they* broke it: the peer is dropped, nobody else is disturbed
    ├── StorageError             a log on disk could not be opened, written or read
    │   ├── LogLocked            somebody else writes it
    │   ├── LogFull              no space is left; nothing of what was asked for was written
    │   ├── LogFailed            the system failed or refused a write, a sync or a read
    │   ├── LogCorrupt           what was read is not what was written
    │   ├── LogMismatch          the folder holds something else, or a newer format
    │   └── LogGone              the segment has been removed
    ├── LakeError                a lake of tables could not be read or written
    │   ├── LakeDamaged          a file of it is gone, or is not what was written
    │   └── LakeBusy             another run changes it
    ├── SparkFailed              Spark could not do its work; the message says what to do
    │   └── SparkBusy            it could not reach one of its processes in time
    ├── PairFailed               the two servers of a pair cannot settle who serves; a person has to
    └── ConfigurationError       a setting, URL or combination that cannot work, refused at once

A `CallError` always answers the one question a caller has to ask before it tries again:
`may_have_executed`. It is False only where the request provably never reached a handler.
"""

from __future__ import annotations


class RequiteError(Exception):
    """The root of everything that requite raises on purpose."""


class CallError(RequiteError):
    """A call ended without the reply that was asked for.

    `may_have_executed` tells whether a handler may have started on the request; `attempts` counts
    how often the request was sent (0: it never left this process). `says_what_to_do`: the message
    already tells the remedy.
    """

    says_what_to_do = False

    def __init__(self, message: str, *, may_have_executed: bool = True, attempts: int = 0) -> None:
        super().__init__(message)
        self.may_have_executed = may_have_executed
        self.attempts = attempts

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.may_have_executed, self.attempts)


def _rebuild(kind: type[CallError], message: str, may_have_executed: bool, n: int) -> CallError:
    return kind(message, may_have_executed=may_have_executed, attempts=n)


class CallTimeout(CallError, TimeoutError):
    """The deadline of the call passed without a final reply."""


class NoService(CallError):
    """No worker serves the service, and none came within the broker's grace."""


class Overloaded(CallError):
    """A limit was reached: the client's slots, or the broker's queue for the service or client."""


class RemoteFailure(CallError):
    """A negative reply: the handler raised, or refused the request. The message is the worker's."""


class WorkerLost(CallError):
    """The worker that held the request died or fell silent, and it may not be run a second time."""


class Poisoned(CallError):
    """The request was given to as many workers as allowed, and was lost with each of them.

    Of a kept request: its attempts are used up, and it is put aside with the reason.
    """


class UnknownTicket(CallError):
    """No request is kept under this ticket: there never was one, or it has been forgotten."""


class StoreUnavailable(CallError):
    """Whoever keeps requests could not write or read them now (9/TSP, 500): try again later.

    The message is the keeper's. A submission that ended so may have been written all the same.
    """


class Cancelled(CallError):
    """The call was given up by its caller, or its client was closed."""


class TransportError(CallError, ConnectionError):
    """There is no connection, or it broke and the request may not be sent a second time."""


class ProtocolViolation(RequiteError):
    """A rule of a protocol was broken; which side broke it is told by the subclass."""


class LocalViolation(ProtocolViolation):
    """Our side was asked for something the protocol forbids."""


class RemoteViolation(ProtocolViolation):
    """The peer sent something the protocol forbids."""


class StorageError(RequiteError):
    """A log on disk could not be opened, written or read. The message says what to do."""


class LogLocked(StorageError):
    """The log has a writer already, in this process or in another one."""


class LogFull(StorageError):
    """No space is left. The log stays usable: try again when there is space."""


class LogFailed(StorageError):
    """The operating system failed or refused to write, sync or read, or the log is closed.

    After a failed sync nobody knows what has reached the disk: the log takes nothing more until it
    is opened again.
    """


class LogCorrupt(StorageError):
    """What was read is not what was written."""


class LogMismatch(StorageError):
    """The folder holds something else: a log for another purpose, a newer format, other files."""


class LogGone(StorageError):
    """The segment or the folder is not there: removed, by retention perhaps, or never made."""


class LakeError(RequiteError):
    """A lake of tables could not be read or written: a full disk, a refused permission.

    The message names the file, and says what to do.
    """


class LakeDamaged(LakeError):
    """A file of a lake is gone, or holds something else than was written; the message names it."""


class LakeBusy(LakeError):
    """Another run changes the lake; nothing of this run counts."""


class SparkFailed(RequiteError):
    """Spark could not do its work: its process has died, or had no memory or sockets left."""


class SparkBusy(SparkFailed):
    """Spark could not reach one of its processes in time, on a machine that is too busy.

    Nothing of the run counts; the same run may succeed the next time.
    """


class PairFailed(RequiteError):
    """The two servers of a fail-over pair contradict each other; the message says what to do."""


class ConfigurationError(RequiteError, ValueError):
    """A URL, a setting or a combination of settings that cannot work."""
