"""`requite pool drain`: have groups finish what they have, and go."""

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
    manager: ManagerUrl = DEFAULT,
    logging: Logging = QUIET,
) -> None:
    """Have groups finish what they have, and go.

    A group gets no more requests by its queue; a request for its key makes it
    active again. When nothing has come for lifetime.stop_delay, its workers end
    and its queue is deleted. The manager itself drains on SIGTERM.

      $ requite pool drain 42 43
      $ requite pool drain --all
    """
    logging.start()
    if everything == bool(keys):
        raise ConfigurationError("drain which groups? Give their keys, or --all")
    chosen = keys
    if everything:
        chosen = tuple(group["key"] for group in ask(manager, "/status")["groups"])
    for key in chosen:
        ask(manager, "/release", {"key": key})
        say(f"draining {printable(key)}")
