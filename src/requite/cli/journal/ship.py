"""`requite journal ship`: copy a journal to another disk or to an object store."""

from __future__ import annotations

import signal
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.journal.options import Directory
from requite.cli.monitored import run_monitored
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, counted, say, say_json
from requite.cli.watching import UNWATCHED, Watching
from requite.errors import ConfigurationError, RequiteError, StorageError
from requite.journal.shipping import Freight, Shipper
from requite.shell import clock
from requite.storage.stores import open_store
from requite.story.words import size

if TYPE_CHECKING:
    from requite.metrics.families import Family
    from requite.metrics.monitor import Monitor, Watched


def ship(
    directory: Directory,
    target: Annotated[
        str,
        Parameter(
            name="TARGET", help="A folder, or a store: `s3://BUCKET/journals`, `gs://…`, `az://…`."
        ),
    ],
    /,
    *,
    follow: Annotated[
        bool,
        Parameter(
            name=("--follow", "-f"),
            show_default=False,
            help="Continue with new events and logs until Ctrl-C or SIGTERM.",
        ),
    ] = False,
    every: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=validators.Number(gt=0),
            help="With --follow: interval between copies.",
        ),
    ] = 5.0,
    watching: Watching = UNWATCHED,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Copy a journal to a folder or object store, also while it is written.

    Copies each log up to its last complete record, and skips data that TARGET has.
    The command can be killed at any time; the next run resumes. Several machines
    can ship their journals to one TARGET, which is itself a journal. Ship a journal
    to a TARGET with one process at a time.

    Stores require the extra `ship`; credentials and endpoints come from the
    environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...).

    Exit code 1: some data was not copied; run it again. With --follow, failures are
    printed and retried, and --http shows metrics, and whether the last copy
    succeeded.

      $ requite journal ship journal /mnt/journals
      $ requite journal ship journal s3://bucket/journals --follow
    """
    logging.start()
    passes = _Passes(Shipper(directory, open_store(target)))
    monitor = watching.monitor("journal ship", lambda: _watched(passes)) if follow else None

    def run() -> None:
        if follow:
            _follow(passes, every, monitor)
        else:
            passes.make()

    if not run_monitored(monitor, run, as_json=as_json):
        return ExitCode.CANNOT_LISTEN
    total, failure = passes.total, passes.failure
    if as_json:
        say_json({"segments": total.segments, "bytes": total.bytes, "failure": failure})
    else:
        say(f"{counted(total.segments, 'segment')}, {size(total.bytes)}: {target}")
    return ExitCode.FAILED if failure else ExitCode.OK


class _Passes:
    """Passes of a shipper over its journal, and their results. The monitor reads it in its thread.

    A failure is printed once, until a pass succeeds.
    """

    def __init__(self, shipper: Shipper) -> None:
        self._shipper: Final = shipper
        self._succeeded_at: float | None = None
        self._began_at: Final = clock.now()
        self.total = Freight()
        self.failure = ""

    @property
    def logs(self) -> int:
        """The number of logs that were found so far."""
        return self._shipper.logs

    @property
    def since_success_s(self) -> float:
        """Time since the last pass that succeeded, or since the start."""
        at = self._succeeded_at
        return clock.now() - (self._began_at if at is None else at)

    @property
    def trouble(self) -> str:
        """See `Watched.trouble`."""
        if self._succeeded_at is None and not self.failure:
            return "the first copy has not ended"
        return self.failure and f"some data was not copied: {self.failure}"

    def make(self) -> None:
        """Copy everything new. Raises `ConfigurationError` if the folder is no journal at the first
        pass."""
        try:
            self.total += self._shipper.ship()
        except StorageError as error:
            self._fail(error)
        except ConfigurationError as error:  # it may be back at the next pass
            is_first = self._succeeded_at is None and not self.failure
            if is_first:
                raise
            self._fail(error)
        else:
            self.failure = ""
            self._succeeded_at = clock.now()

    def _fail(self, error: RequiteError) -> None:
        if not self.failure:
            complain(f"some data was not copied: {error}")
        self.failure = str(error)


def _follow(passes: _Passes, every_s: float, monitor: Monitor | None) -> None:
    """Make passes until Ctrl-C or SIGTERM, and then a last one."""
    ended = _ended_by_signals()
    passes.make()
    while not ended.wait(every_s):
        passes.make()
    if monitor is not None:
        monitor.draining()
    passes.make()


def _watched(passes: _Passes) -> Watched:
    from requite.metrics.servers import of_shipper
    from requite.metrics.watched import WatchedServer

    def read() -> list[Family]:
        return of_shipper(
            passes.total, passes.logs, passes.since_success_s, failed=bool(passes.failure)
        )

    return WatchedServer(passes, read)


def _ended_by_signals() -> Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended
