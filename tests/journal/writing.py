"""A process that writes a journal, for tests that kill it or fill its disk.

    python -m tests.journal.writing DIR kill|full

`kill`: write 1,000 requests, print "written", and wait to be killed.
`full`: limit the size of files and write until rows are dropped; lift the limit, close the journal,
and print the failure and the counts as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.journal.rows import SPAN
from tests.support.live import eventually

from requite.chronicle import WriterRole
from requite.journal import Journal, JournalSettings

NAME = bytes.fromhex("0123456789abcdef")
QUICK = JournalSettings(
    flush_every_s=0.01,
    sync_every_s=0.05,
    retry_every_s=0.05,
    segment_size_bytes=1 << 20,
    backlog_rows_max=2_000,
)
FILE_SIZE_MAX = 300_000


def main(directory: str, what: str) -> None:
    journal = Journal(Path(directory), WriterRole.BROKER, NAME, settings=QUICK)
    journal.start()
    {"kill": wait_to_be_killed, "full": fill_the_disk}[what](journal)


def wait_to_be_killed(journal: Journal) -> None:
    write(journal, 1_000)
    settle(journal, lambda: not journal.status().waiting)
    print("written", flush=True)
    time.sleep(60)


def fill_the_disk(journal: Journal) -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_MAX, hard))
    written = 0
    while not journal.dropped:
        written += write(journal, 1_000)
        settle(journal, lambda: not journal.status().waiting or journal.status().failure)
    failure = journal.status().failure
    resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    settle(journal, lambda: not journal.status().failure)
    written += write(journal, 1_000)
    journal.close()
    print(json.dumps({"failure": failure, "dropped": journal.dropped, "written": written}))


def write(journal: Journal, count: int) -> int:
    """Append rows as an engine does, without waiting for the journal. Return `count`."""
    for _ in range(count):
        journal.chronicle.spans.append(SPAN)
    return count


def settle(journal: Journal, look: Callable[[], object]) -> None:
    eventually(look, f"the journal settles: {journal.status()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
