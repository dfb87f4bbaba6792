"""`requite pool scale`: how many workers a group has."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from requite.cli.options import QUIET, Logging
from requite.cli.pool.asking import DEFAULT, Key, ManagerUrl, ask


def scale(
    key: Key,
    workers: Annotated[
        int,
        Parameter(
            name="N", validator=validators.Number(gt=0), help="How many workers it shall have."
        ),
    ],
    /,
    *,
    manager: ManagerUrl = DEFAULT,
    logging: Logging = QUIET,
) -> None:
    """Have so many workers in a group; one that is not there is started.

    It holds until the group is stopped or the manager ends. Where something else
    scales groups (KEDA, an HPA), the driver refuses.

      $ requite pool scale 42 3
    """
    logging.start()
    ask(manager, "/scale", {"key": key, "workers": workers})
