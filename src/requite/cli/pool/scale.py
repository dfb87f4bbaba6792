"""`requite pool scale`: set the number of workers of a group."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from requite.cli.options import QUIET, Logging
from requite.cli.pool.client import DEFAULT, Key, Manager, ask


def scale(
    key: Key,
    workers: Annotated[
        int,
        Parameter(name="N", validator=validators.Number(gt=0), help="The number of workers."),
    ],
    /,
    *,
    manager: Manager = DEFAULT,
    logging: Logging = QUIET,
) -> None:
    """Set the number of workers of a group; start the group if necessary.

    The number holds until the group is stopped or the manager exits. The driver
    refuses if an autoscaler (KEDA, an HPA) scales groups.

      $ requite pool scale 42 3
    """
    logging.start()
    ask(manager, "/scale", {"key": key, "workers": workers})
