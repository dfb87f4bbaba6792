"""`requite journal ship`: copies of a journal, on another disk or in a store of objects."""

from __future__ import annotations

import signal
from threading import Event
from typing import Annotated

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.journal.options import Directory, size_of
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, counted, say, say_json
from requite.errors import StorageError
from requite.journal.shipping import Freight, Shipper
from requite.storage.stores import open_store


def ship(
    directory: Directory,
    target: Annotated[
        str,
        Parameter(
            name="TARGET", help="A folder, or such as `s3://BUCKET/journals`, `gs://…`, `az://…`."
        ),
    ],
    /,
    *,
    follow: Annotated[
        bool,
        Parameter(
            name=("--follow", "-f"),
            show_default=False,
            help="Go on with what comes, new logs included, until Ctrl-C or SIGTERM.",
        ),
    ] = False,
    every: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=validators.Number(gt=0),
            help="How long to wait between two looks at the journal, with --follow.",
        ),
    ] = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Copy a journal to where it is read, while it is written or after that.

    Logs are copied in their order, up to their last complete record; what is there is
    not copied again. It can be killed at any time: the next one goes on. So several
    machines can ship their journals to one TARGET, which is a journal itself. One
    process at a time ships a journal to a TARGET.

    Stores need the extra `ship`; their credentials and endpoints come from the
    environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...).

    Exit code 1: not everything has been copied; run it again. With --follow, failures
    are told and tried again.

      $ requite journal ship journal /mnt/journals
      $ requite journal ship journal s3://bucket/journals --follow
    """
    logging.start()
    shipper = Shipper(directory, open_store(target))
    ended = _ended_by_signals() if follow else Event()
    total, failure = Freight(), ""
    is_last = not follow
    while True:
        try:
            total += shipper.ship()
            failure = ""
        except StorageError as error:
            if not failure:
                complain(f"not everything has been shipped: {error}")
            failure = str(error)
        if is_last:
            break
        is_last = ended.wait(every)
    if as_json:
        say_json({"segments": total.segments, "bytes": total.bytes, "failure": failure})
    else:
        say(f"{counted(total.segments, 'segment')}, {size_of(total.bytes)}: {target}")
    return ExitCode.FAILED if failure else ExitCode.OK


def _ended_by_signals() -> Event:
    """Return what is set by Ctrl-C and SIGTERM: what is there then is still shipped."""
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended
