"""Every failure a user of requite can meet, on one screen.

    RequiteError
    ├── CallError                a call ended without the reply that was asked for
    │   ├── CallTimeout          the deadline passed
    │   ├── NoService            no worker serves the service
    │   ├── Overloaded           a queue or the table of slots is full
    │   ├── Denied               the caller has no right to make this call
    │   ├── BadRequest           the request does not fit the method; the handler has not run
    │   ├── RemoteFailure        a negative reply: the handler failed or refused
    │   │   └── BadReply         the reply does not fit the method, as the caller knows it
    │   ├── WorkerLost           the worker died with the request, which may not be run again
    │   ├── Poisoned             every worker that was given the request died with it
    │   ├── UnknownTicket        no durable request is stored under the ticket
    │   ├── StoreUnavailable     the store of durable requests cannot write or read them now
    │   ├── Cancelled            the call was cancelled, or its client was closed
    │   └── TransportError       no connection, or it broke and the request may not be resent
    ├── ProtocolViolation
    │   ├── LocalViolation       *we* were asked to break the protocol: a bug, or bad arguments
    │   └── RemoteViolation      *they* broke it: the peer is dropped; other peers are not affected
    ├── StorageError             a log on disk could not be opened, written or read
    │   ├── LogLocked            another writer has the log open
    │   ├── LogFull              no space is left; nothing was written
    │   ├── LogFailed            the system failed or refused a write, a sync or a read
    │   ├── LogCorrupt           the data read differ from the data written
    │   ├── LogMismatch          the folder holds something else, or a newer format
    │   └── LogGone              the segment has been removed
    ├── LakeError                a lake of tables could not be read or written
    │   ├── LakeDamaged          a file of the lake is missing or damaged
    │   └── LakeBusy             another run changes the lake
    ├── SparkFailed              Spark failed; the message says what to do
    │   └── SparkBusy            Spark could not reach one of its processes in time
    ├── PairFailed               the servers of a pair cannot agree who serves; an operator decides
    └── ConfigurationError       a setting, URL or combination that cannot work, refused at once

Before it retries, a caller must know whether the request may have run: every `CallError` has
`may_have_executed`. It is False only if the request provably never reached a handler.
"""

from __future__ import annotations


class RequiteError(Exception):
    """Base class of all errors that requite raises on purpose."""


class CallError(RequiteError):
    """A call ended without the reply that was asked for.

    `may_have_executed`: whether a handler may have started the request. `attempts`: how often the
    request was sent (0: never). `request_id`: the ID of the request, in hexadecimal, as journals,
    logs and `requite why` have it; "" if the request was refused before it had one, or if its
    protocol has no IDs and its client keeps no journal. `says_what_to_do`: the message includes the
    remedy.
    """

    says_what_to_do = False
    request_id = ""

    def __init__(self, message: str, *, may_have_executed: bool = True, attempts: int = 0) -> None:
        super().__init__(message)
        self.may_have_executed = may_have_executed
        self.attempts = attempts

    def reworded(self, message: str, *, may_have_executed: bool) -> CallError:
        """Return an error of the same kind about the same request, with another message."""
        error = type(self)(message, may_have_executed=may_have_executed, attempts=self.attempts)
        error.request_id = self.request_id
        return error

    def __reduce__(self) -> tuple[object, ...]:
        said = (type(self), str(self), self.may_have_executed, self.attempts)
        return _rebuild, said, {"request_id": self.request_id}


def _rebuild(kind: type[CallError], message: str, may_have_executed: bool, n: int) -> CallError:
    return kind(message, may_have_executed=may_have_executed, attempts=n)


class CallTimeout(CallError, TimeoutError):
    """The deadline of the call passed without a final reply."""


class NoService(CallError):
    """No worker serves the service, and none registered within the broker's grace period."""


class Overloaded(CallError):
    """A limit was reached: the client's slots, or the broker's queue for a service or client."""


class Denied(CallError):
    """The caller has no right to make this call. The message names the missing right.

    It never ran, unless the right was taken away while a worker had the request.
    """


class RemoteFailure(CallError):
    """A negative reply: the handler raised, or refused the request. The message is the worker's.

    `is_final`: the service would refuse the request again each time, as typed services do with
    `BadRequest` and declared errors. Titanic stores such a reply and does not retry the request.
    """

    is_final = False

    def __reduce__(self) -> tuple[object, ...]:
        said = (type(self), str(self), self.may_have_executed, self.attempts)
        return _rebuild, said, {"request_id": self.request_id, "is_final": self.is_final}


class _Misfit(CallError):
    """A message does not fit its method, at `path` (`$.count`) for a `reason`."""

    def __init__(
        self,
        message: str,
        *,
        path: str = "$",
        reason: str = "",
        may_have_executed: bool = True,
        attempts: int = 0,
    ) -> None:
        super().__init__(message, may_have_executed=may_have_executed, attempts=attempts)
        self.path = path
        self.reason = reason or message

    def __reduce__(self) -> tuple[object, ...]:
        said = (type(self), str(self), self.path, self.reason)
        rest = self.may_have_executed, self.attempts
        return _rebuild_misfit, (*said, *rest), {"request_id": self.request_id}


def _rebuild_misfit(
    kind: type[_Misfit], message: str, path: str, reason: str, may_have_executed: bool, n: int
) -> CallError:
    return kind(message, path=path, reason=reason, may_have_executed=may_have_executed, attempts=n)


class BadRequest(_Misfit):
    """The request does not fit the method of a typed service; its handler has not run.

    `path` is the place in the request (`$.count`), `reason` what is wrong there.
    """


class BadReply(_Misfit, RemoteFailure):
    """The reply does not fit the method, as this caller knows it; the handler has run.

    `path` is the place in the reply (`$.price`), `reason` what is wrong there.
    """


class WorkerLost(CallError):
    """The request's worker died or fell silent, and the request must not run a second time."""


class Poisoned(CallError):
    """The request was given to as many workers as allowed, and each of them was lost.

    A durable request is set aside with the reason after its last attempt.
    """


class UnknownTicket(CallError):
    """No durable request is stored under this ticket: it never was, or it has been deleted."""


class StoreUnavailable(CallError):
    """The store could not write or read durable requests now (9/TSP, 500); retry later.

    The message is the store's. A submission that ends with this error may have been stored.
    """


class Cancelled(CallError):
    """The caller cancelled the call, or its client was closed."""


class TransportError(CallError, ConnectionError):
    """There is no connection, or it broke and the request must not be resent."""


class ProtocolViolation(RequiteError):
    """One side broke a rule of a protocol; the subclass says which."""


class LocalViolation(ProtocolViolation):
    """This process was asked to do something that the protocol forbids."""


class RemoteViolation(ProtocolViolation):
    """The peer sent something that the protocol forbids."""


class StorageError(RequiteError):
    """A log on disk could not be opened, written or read. The message says what to do.

    `cut_bytes`: the size of the torn tail of the log that a failed opening has truncated.
    """

    cut_bytes = 0


class LogLocked(StorageError):
    """The log has another writer, in this process or another one."""


class LogFull(StorageError):
    """No space is left. The log stays usable: retry when there is space."""


class LogFailed(StorageError):
    """The operating system failed or refused to write, sync or read, or the log is closed.

    After a failed sync it is unknown what has reached the disk, so the log refuses further writes
    until it is reopened.
    """


class LogCorrupt(StorageError):
    """The data read differ from the data written."""


class LogMismatch(StorageError):
    """The folder holds something else: a log for another purpose, a newer format, other files."""


class LogGone(StorageError):
    """The segment or folder does not exist: removed, perhaps by retention, or never created."""


class LakeError(RequiteError):
    """A lake of tables could not be read or written: disk full, permission denied.

    The message names the file and says what to do.
    """


class LakeDamaged(LakeError):
    """A file of a lake is missing or damaged; the message names it."""


class LakeBusy(LakeError):
    """Another run changes the lake; this run has no effect."""


class SparkFailed(RequiteError):
    """Spark failed: its process died, or ran out of memory or sockets."""


class SparkBusy(SparkFailed):
    """Spark could not reach one of its processes in time, since the machine is too busy.

    This run has no effect; retry it.
    """


class PairFailed(RequiteError):
    """The two servers of a fail-over pair contradict each other; the message says what to do."""


class ConfigurationError(RequiteError, ValueError):
    """A URL, a setting or a combination of settings that cannot work."""
