"""`requite journal ship`: copy a journal to another disk or to an object store."""

from __future__ import annotations

import signal
from threading import Event
from typing import Annotated

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.journal.options import Directory
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, counted, say, say_json
from requite.errors import StorageError
from requite.journal.shipping import Freight, Shipper
from requite.storage.stores import open_store
from requite.story.words import size


def ship(
    directory: Directory,
    target: Annotated[
        str,
        Parameter(
            name="TARGET", help="A folder, or a store: `s3://BUCKET/journals`, `gs://…`, `az://…`."
        ),
    ],
    /,
    *,
    follow: Annotated[
        bool,
        Parameter(
            name=("--follow", "-f"),
            show_default=False,
            help="Continue with new events and logs until Ctrl-C or SIGTERM.",
        ),
    ] = False,
    every: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=validators.Number(gt=0),
            help="With --follow: interval between copies.",
        ),
    ] = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Copy a journal to a folder or object store, also while it is written.

    Copies each log up to its last complete record, and skips data that TARGET has.
    The command can be killed at any time; the next run resumes. Several machines
    can ship their journals to one TARGET, which is itself a journal. Ship a journal
    to a TARGET with one process at a time.

    Stores require the extra `ship`; credentials and endpoints come from the
    environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...).

    Exit code 1: some data was not copied; run it again. With --follow, failures are
    printed and retried.

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
                complain(f"some data was not copied: {error}")
            failure = str(error)
        if is_last:
            break
        is_last = ended.wait(every)
    if as_json:
        say_json({"segments": total.segments, "bytes": total.bytes, "failure": failure})
    else:
        say(f"{counted(total.segments, 'segment')}, {size(total.bytes)}: {target}")
    return ExitCode.FAILED if failure else ExitCode.OK


def _ended_by_signals() -> Event:
    """Return an event that Ctrl-C and SIGTERM set; the loop then copies once more."""
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended
