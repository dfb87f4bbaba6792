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
ZapHandler = Annotated[
    str | None,
    Parameter(
        name="--zap",
        metavar="URL",
        help="Ask the ZAP handler (RFC 27) at URL about each peer that --access admits: "
        "`tcp://127.0.0.1:PORT`, `ipc:///PATH` or `tls://HOST:PORT?ca=FILE`. It may refuse the "
        "peer.",
    ),
]
ZapDomain = Annotated[
    str,
    Parameter(name="--zap-domain", metavar="NAME", help="The domain in questions to --zap."),
]
