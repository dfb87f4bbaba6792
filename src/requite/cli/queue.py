"""`requite queue`: run the queue of a Simple or Paranoid Pirate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Group, Parameter

from requite.cli.access.options import AccessFile, Insecure
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.options import (
    INTERVAL,
    LIMITS,
    LIVENESS,
    POSITIVE,
    QUIET,
    JournalFolder,
    Logging,
    MessageSizeMax,
    complete_ones,
    within,
)
from requite.cli.output import say
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.tls import NO_TLS, Tls
from requite.cli.watching import UNWATCHED, Watching
from requite.core.liveness import HeartbeatPolicy
from requite.framing import Limits

if TYPE_CHECKING:
    from requite.metrics.monitor import Watched
    from requite.queue import Queue

_ADDRESSES: Final = Group("Addresses", sort_key=5)
_LIVENESS: Final = Group("Liveness", sort_key=10)
_BEATS: Final = HeartbeatPolicy()
_MESSAGE_SIZE_MAX: Final = Limits().message_size_bytes_max


def _queue_at(addresses: tuple[str, ...]) -> None:
    from requite.queue import Queue

    if places := complete_ones(addresses):
        Queue(places, insecure=True)


def queue(
    *,
    protocol: Annotated[
        Literal["simple", "paranoid"],
        Parameter(
            help="Protocol of the workers: READY only (`simple`, REQ sockets), or READY and "
            "heartbeats in both directions (`paranoid`, 6/PPP).",
        ),
    ] = "paranoid",
    front: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ADDRESS",
            group=_ADDRESSES,
            validator=within(_queue_at),
            show_default=" ".join,
            help="Listen here for clients: `tcp://HOST:PORT`, `tls://HOST:PORT` or `ipc:///PATH`, "
            "or the client's URL (`pirate+ipc:///PATH`); repeatable. Port 0 chooses a free port.",
        ),
    ] = ("tcp://127.0.0.1:5555",),
    back: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ADDRESS",
            group=_ADDRESSES,
            validator=within(_queue_at),
            show_default=" ".join,
            help="Listen here for workers; the same forms as --front.",
        ),
    ] = ("tcp://127.0.0.1:5556",),
    heartbeat_interval: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            group=_LIVENESS,
            validator=INTERVAL,
            help="Paranoid: interval between heartbeats, in both directions. Set the same value on "
            f"the workers. [default: {_BEATS.interval_s}]",
        ),
    ] = None,
    liveness: Annotated[
        int | None,
        Parameter(
            metavar="N",
            group=_LIVENESS,
            validator=LIVENESS,
            help="Paranoid: count an idle worker as lost after N silent intervals. "
            f"[default: {_BEATS.liveness}]",
        ),
    ] = None,
    drain_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group=LIMITS,
            validator=POSITIVE,
            help="After SIGTERM: time for workers to finish.",
        ),
    ] = 10.0,
    message_size_max: MessageSizeMax = _MESSAGE_SIZE_MAX,
    access: AccessFile = None,
    insecure: Insecure = False,
    tls: Tls = NO_TLS,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    watching: Watching = UNWATCHED,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Distribute requests of Lazy Pirate clients to workers.

    Each request goes to the worker that has been idle longest, or waits for one.
    Clients are `requite call pirate://HOST:PORT`, or any REQ socket of ZeroMQ;
    workers connect to --back. It prints one line per address: `listening on URL
    for clients`, `listening on URL for workers`.

    The queue stores nothing, and never sends a request to a second worker:
    clients retry when they get no reply. SIGTERM or Ctrl-C drains: it waits for
    the replies of busy workers, and exits with 0. A second signal stops it at
    once.

      $ requite queue --protocol paranoid
      $ requite worker requite.examples:echo --connect pirate://127.0.0.1:5556
      $ requite call pirate://127.0.0.1:5555 hello
    """
    from requite.cli.serving import run_until_stopped
    from requite.errors import ConfigurationError
    from requite.queue import Queue
    from requite.queue.queue import queue_policy

    if protocol == "simple" and not (heartbeat_interval is None and liveness is None):
        raise ConfigurationError(
            "a simple queue has no heartbeats: remove --heartbeat-interval and --liveness"
        )
    logging.start()
    fronts, backs = tls.complete(front, back)
    server = Queue(
        fronts,
        backs,
        protocol=protocol,
        policy=queue_policy(heartbeat_interval, liveness, drain_timeout),
        message_size_max=message_size_max,
        access=access,
        insecure=insecure,
        journal=journal_option(journal, journal_retain, journal_ship),
    )
    monitor = watching.monitor("queue", lambda: _watched(server))
    if setup.check:
        return setup.report(
            f"the {protocol} queue would listen on {' and '.join(front)} for clients and on "
            f"{' and '.join(back)} for workers",
            folders={"--journal": journal},
        )

    def announce() -> None:
        for url in server.front_addresses:
            say(f"listening on {url} for clients")
        for url in server.back_addresses:
            say(f"listening on {url} for workers")

    return run_until_stopped(server, announce, monitor=monitor)


def _watched(server: Queue) -> Watched:
    from requite.metrics.servers import of_queue
    from requite.metrics.watched import WatchedServer

    return WatchedServer(server, lambda: of_queue(server.snapshot()))
