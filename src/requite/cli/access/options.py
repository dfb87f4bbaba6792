"""Options of the verbs that listen: their users, and which addresses they may take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

AccessFile = Annotated[
    Path | None,
    Parameter(
        name="--access",
        metavar="FILE",
        env_var="REQUITE_ACCESS_FILE",
        help="Admit only the users of FILE, with their rights. FILE is read again when it changes. "
        "Without it everybody may do everything, at loopback addresses and Unix sockets only.",
    ),
]
Insecure = Annotated[
    bool,
    Parameter(
        name="--insecure",
        negative="",
        show_default=False,
        help="Listen at any address without --access: everybody who reaches it may do everything.",
    ),
]
