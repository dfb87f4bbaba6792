"""`requite dedup erase`: erase the stored replies to one user's requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from requite.cli.options import QUIET, Logging
from requite.cli.output import counted, printable, say


def erase(
    directory: Path,
    /,
    *,
    owner: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="The user whose replies to erase, as handlers see it in `request.principal`; "
            "'' for requests without a user.",
        ),
    ],
    key_file: Annotated[
        Path | None,
        Parameter(metavar="FILE", help="The keys of the folder, if it is encrypted."),
    ] = None,
    logging: Logging = QUIET,
) -> None:
    """Erase the replies to one user's requests from the folder of a `Dedup`.

    Stop the worker that uses the folder before. It stays known until the end of
    their window (an hour by default) that the requests have run: a repetition
    gets a negative reply.

      $ requite dedup erase replies --owner ann
    """
    from requite.dedup.erasing import erase as erase_from

    logging.start()
    erased = erase_from(directory, owner, key_file)
    replies = "1 reply" if erased.replies == 1 else f"{erased.replies:,} replies"
    requests = counted(erased.requests, "request")
    say(printable(f"erased {replies} to {requests} of {owner or 'no user'}"))
