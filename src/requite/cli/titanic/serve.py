"""`requite titanic serve`: store requests durably, behind any MDP broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.options import PLAIN, QUIET, URLS, Connection, Logging
from requite.cli.output import complain, say
from requite.cli.titanic.options import (
    DEFAULTS,
    IN_MEMORY,
    KEPT,
    OWNER_REQUESTS_MAX,
    Attempts,
    AttemptTimeout,
    Chosen,
    DiskMax,
    Expire,
    Folder,
    KeyFile,
    Memory,
    OwnerBytes,
    OwnerRequests,
    Replica,
    ReplicaMode,
    Standby,
)
from requite.cli.watching import UNWATCHED, Watching
from requite.errors import ConfigurationError
from requite.speaks.url import redact

if TYPE_CHECKING:
    from requite.metrics.monitor import Watched
    from requite.titanic import Titanic


def serve(
    *,
    broker: Annotated[
        str,
        Parameter(
            metavar="URL",
            group=KEPT,
            validator=URLS,
            help="Address of the broker: `mdp://HOST:PORT`.",
        ),
    ],
    dir: Folder = None,
    memory: Memory = False,
    attempts: Attempts = None,
    attempt_timeout: AttemptTimeout = DEFAULTS.attempt_timeout_s,
    expire: Expire = None,
    disk_max: DiskMax = None,
    owner_requests_max: OwnerRequests = OWNER_REQUESTS_MAX,
    owner_bytes_max: OwnerBytes = None,
    key_file: KeyFile = None,
    replica: Replica = None,
    replica_mode: ReplicaMode = "async",
    standby: Standby = False,
    blind: Annotated[
        bool,
        Parameter(
            group=KEPT,
            show_default=False,
            help="For brokers without `mmi.service`: do not ask whether a service has workers; "
            "send at once, and retry when no reply arrives.",
        ),
    ] = False,
    connection: Connection = PLAIN,
    watching: Watching = UNWATCHED,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Store requests until they are answered (9/TSP), behind any MDP broker.

    It registers with the broker for `titanic.request`, `titanic.reply` and
    `titanic.close`. Each request is on disk before the client gets its ticket.
    Titanic sends it to its service when a worker is ready, retries until there is
    a reply, and stores the reply until a client forgets it. The broker may start
    later.

    `requite broker --titanic DIR` runs Titanic inside the broker's process, which
    is faster.

    SIGTERM or Ctrl-C drains: it accepts no requests, waits for the replies of
    workers, and exits with 0. A second signal stops it at once. Requests without
    a reply stay in DIR for the next start. While the disk fails it refuses new
    requests and serves what it can read; it resumes when DIR is writable again.

      $ requite titanic --broker mdp://127.0.0.1:5555 --dir requests
    """
    from requite.cli.serving import collect_rarely, run_until_stopped
    from requite.titanic import Titanic

    logging.start()
    chosen = Chosen(
        dir,
        memory,
        attempts,
        attempt_timeout,
        expire,
        disk_max,
        replica,
        replica_mode,
        standby,
        owner_requests_max,
        owner_bytes_max,
        key_file,
        check_service=not blind,
    )
    keep_in = chosen.settings()
    if keep_in is None:
        raise ConfigurationError("choose where to store requests: give --dir DIR or --memory")
    server = Titanic(connection.complete(broker), keep_in, dialect=connection.dialect)
    monitor = watching.monitor("titanic serve", lambda: _watched(server))
    if setup.check:
        return setup.report(
            f"Titanic would store requests for {redact(broker)} in {dir or 'memory'}",
            folders={"--dir": dir},
        )

    def announce() -> None:
        say(f"serving titanic for {redact(broker)}")
        if memory:
            complain(IN_MEMORY)

    collect_rarely()
    return run_until_stopped(server, announce, monitor=monitor)


def _watched(server: Titanic) -> Watched:
    from requite.metrics.watched import WatchedServer, read_titanic

    return WatchedServer(server, lambda: read_titanic(server))
