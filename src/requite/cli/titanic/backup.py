"""`requite titanic backup`: copy a store, also while it is in use."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, counted, say, say_json
from requite.story.words import size


def backup(
    directory: Annotated[
        Path, Parameter(name="DIR", help="The folder of `--titanic DIR` or `titanic --dir DIR`.")
    ],
    target: Annotated[Path, Parameter(name="TARGET", help="The folder to create.")],
    /,
    *,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Copy the stored requests in DIR to a new folder, also while they are in use.

    The copy has every request and reply that was acknowledged before the command
    started. Once TARGET exists it is complete and on disk. To restore it, copy it
    to an empty folder, and start a broker or `requite titanic` on that folder.

    It holds the bodies of requests: only its owner may read it. Exit code 1: the
    copy was made, and some places were unreadable in DIR already.

      $ requite titanic backup /var/lib/requite/requests /backup/2026-11-26
    """
    from requite.storage.backup import back_up
    from requite.titanic.store import PURPOSE

    logging.start()
    # Each segment takes a descriptor, and the usual limit is 1,024.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = back_up(directory, target, purpose=PURPOSE)
    if as_json:
        say_json(
            {
                "segments": made.segments,
                "bytes": made.size_bytes,
                "records": made.records,
                "damaged": len(made.damaged),
            }
        )
    else:
        say(
            f"{target}: {counted(made.records, 'record')}, {size(made.size_bytes)} in"
            f" {counted(made.segments, 'file')}"
        )
    if not made.damaged:
        return ExitCode.OK
    complain(
        f"{counted(len(made.damaged), 'place')} of {directory} cannot be read, and the copy lacks"
        " the same records; a Titanic on it sets aside the requests that this leaves in doubt"
    )
    return ExitCode.FAILED
