"""`requite titanic serve`: keep requests, behind any MDP broker."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.options import PLAIN, QUIET, Connection, Logging
from requite.cli.output import complain, say
from requite.cli.titanic.options import (
    DEFAULTS,
    IN_MEMORY,
    KEPT,
    Attempts,
    AttemptTimeout,
    Chosen,
    DiskMax,
    Expire,
    Folder,
    Memory,
    Replica,
    ReplicaMode,
    Standby,
)
from requite.errors import ConfigurationError
from requite.speaks.url import redact


def serve(
    *,
    broker: Annotated[
        str, Parameter(metavar="URL", group=KEPT, help="Where the broker is: `mdp://HOST:PORT`.")
    ],
    dir: Folder = None,
    memory: Memory = False,
    attempts: Attempts = None,
    attempt_timeout: AttemptTimeout = DEFAULTS.attempt_timeout_s,
    expire: Expire = None,
    disk_max: DiskMax = None,
    replica: Replica = None,
    replica_mode: ReplicaMode = "async",
    standby: Standby = False,
    blind: Annotated[
        bool,
        Parameter(
            group=KEPT,
            show_default=False,
            help="Do not ask the broker which services are there, for brokers that do not know "
            "`mmi.service`: send at once, and again when no reply comes.",
        ),
    ] = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> int:
    """Keep requests until they are answered (9/TSP), behind any MDP broker.

    It signs up at the broker for `titanic.request`, `titanic.reply` and
    `titanic.close`. A request is on the disk before its ticket is given away; it
    goes to its service as soon as there is a worker, and again until there is a
    reply, which is kept until it is forgotten. The broker need not be there yet.

    `requite broker --titanic DIR` does the same inside the broker's process, and
    faster.

    SIGTERM or Ctrl-C drains: nothing new, what is with workers may come back, exit
    code 0. A second one stops at once. What has no reply stays in DIR, for the
    next one. While the disk fails nothing is accepted, and what can be read is
    served; as soon as the same folder can be written again, it goes on.

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
        check_service=not blind,
    )
    keep_in = chosen.settings()
    if keep_in is None:
        raise ConfigurationError("requests are kept in --dir DIR, or with --memory: give one")
    server = Titanic(connection.complete(broker), keep_in, dialect=connection.dialect)

    def announce() -> None:
        say(f"serving titanic for {redact(broker)}")
        if memory:
            complain(IN_MEMORY)

    collect_rarely()
    return run_until_stopped(server, announce)
