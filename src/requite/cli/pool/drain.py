"""`requite pool drain`: drain groups or workers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.options import QUIET, Logging
from requite.cli.output import printable, say
from requite.cli.pool.client import DEFAULT, Manager, ask
from requite.errors import ConfigurationError


def drain(
    *keys: Annotated[str, Parameter(name="KEY", help="The keys of the groups.")],
    everything: Annotated[
        bool, Parameter(name="--all", show_default=False, help="All groups of the pool.")
    ] = False,
    restart: Annotated[
        bool,
        Parameter(
            name="--restart",
            show_default=False,
            help="Drain the workers now, and replace them; the groups stay.",
        ),
    ] = False,
    worker: Annotated[
        tuple[str, ...],
        Parameter(
            name="--worker",
            metavar="ID",
            show_default=False,
            help="Drain this one worker now (WORKER_ID); repeat it for several.",
        ),
    ] = (),
    manager: Manager = DEFAULT,
    logging: Logging = QUIET,
) -> None:
    """Drain groups or workers.

    A drained group is unbound from its queue's exchange; a request for its key
    makes it active again. After lifetime.stop_delay without requests, its workers
    stop and its queue is deleted. The manager itself drains on SIGTERM.

    With --restart, and with --worker, workers take no more requests, finish those
    they hold and exit. New requests wait in their queue for the workers that the
    manager starts as replacements.

      $ requite pool drain 42 43
      $ requite pool drain --all
      $ requite pool drain 42 --restart
      $ requite pool drain --worker 3b1f0c5ad9e2
    """
    logging.start()
    if everything + bool(keys) + bool(worker) != 1 or (worker and restart):
        raise ConfigurationError("nothing to drain: give keys of groups, --all or --worker")
    if worker or restart:
        _drain_workers(manager, keys, worker)
    else:
        _release(manager, keys)


def _drain_workers(manager: Manager, keys: tuple[str, ...], workers: tuple[str, ...]) -> None:
    """Drain workers: those of groups, single ones, or all if none is given."""
    for key in keys:
        ask(manager, "/drain", {"key": key})
        say(f"draining the workers of {printable(key)}")
    for worker in workers:
        ask(manager, "/drain", {"worker": worker})
        say(f"draining worker {printable(worker)}")
    if not keys and not workers:
        ask(manager, "/drain", {"all": True})
        say("draining all workers")


def _release(manager: Manager, keys: tuple[str, ...]) -> None:
    """Release groups, or all if none is given. Raises `ConfigurationError`."""
    status = ask(manager, "/status")
    known = [group["key"] for group in status["groups"]]
    unknown = ", ".join(printable(repr(key)) for key in keys if key not in known)
    if unknown and status["state"] == "active":  # a standby refuses with its own message
        raise ConfigurationError(f"unknown group {unknown}; `requite pool ls` lists the groups")
    for key in keys or known:
        ask(manager, "/release", {"key": key})
        say(f"draining {printable(key)}")
