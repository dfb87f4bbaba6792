"""`requite pool drain`: have groups, or workers, finish what they have, and go."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from requite.cli.options import QUIET, Logging
from requite.cli.output import printable, say
from requite.cli.pool.asking import DEFAULT, ManagerUrl, ask
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
            help="Have the workers end now; the groups stay, and get others.",
        ),
    ] = False,
    worker: Annotated[
        tuple[str, ...],
        Parameter(
            name="--worker",
            metavar="ID",
            show_default=False,
            help="Have this one worker end now (WORKER_ID); repeat it for several.",
        ),
    ] = (),
    manager: ManagerUrl = DEFAULT,
    logging: Logging = QUIET,
) -> None:
    """Have groups finish what they have, and go.

    A group gets no more requests by its queue; a request for its key makes it
    active again. When nothing has come for lifetime.stop_delay, its workers end
    and its queue is deleted. The manager itself drains on SIGTERM.

    With --restart, and with --worker, workers are told to take no more requests,
    finish what they hold and end. Requests that come meanwhile wait in their queue
    for the workers that the manager starts in their place.

      $ requite pool drain 42 43
      $ requite pool drain --all
      $ requite pool drain 42 --restart
      $ requite pool drain --worker 3b1f0c5ad9e2
    """
    logging.start()
    if everything + bool(keys) + bool(worker) != 1 or (worker and restart):
        raise ConfigurationError("drain which groups? Give their keys, or --all, or a --worker")
    if worker or restart:
        _drain_workers(manager, keys, worker)
    else:
        _release(manager, keys)


def _drain_workers(manager: str, keys: tuple[str, ...], workers: tuple[str, ...]) -> None:
    """Have workers end: those of groups, single ones, or, where none is named, all."""
    for key in keys:
        ask(manager, "/drain", {"key": key})
        say(f"draining the workers of {printable(key)}")
    for worker in workers:
        ask(manager, "/drain", {"worker": worker})
        say(f"draining worker {printable(worker)}")
    if not keys and not workers:
        ask(manager, "/drain", {"all": True})
        say("draining all workers")


def _release(manager: str, keys: tuple[str, ...]) -> None:
    """Have groups go; where none is named, all. Raises `ConfigurationError`."""
    status = ask(manager, "/status")
    known = [group["key"] for group in status["groups"]]
    unknown = ", ".join(printable(repr(key)) for key in keys if key not in known)
    if unknown and status["state"] == "active":  # another manager refuses, and says which to ask
        raise ConfigurationError(f"there is no group {unknown}; `requite pool ls` shows all")
    for key in keys or known:
        ask(manager, "/release", {"key": key})
        say(f"draining {printable(key)}")
