"""The history of requests on disk: logs for the pipeline and the command to read.

    journal.py   Journal: a chronicle for an engine, and the thread that writes it to disk
    settings.py  settings and status of a journal
    scribe.py    takes rows, writes them, handles disk failures
    writer.py    rows to a log, segment by segment
    encode.py    rows to blocks; strings.py interns their strings
    clock.py     monotonic instants to wall time
    folder.py    the logs in a journal's folder
    blocks.py    the columns of a log's record: data, for every decoder
    index.py     which requests a segment has; search.py finds their events
    meaning.py   the events that a row represents

The bytes are specified in docs/protocols/log-format.md.
"""

from requite.journal.journal import Journal
from requite.journal.settings import JournalSettings, JournalStatus

__all__ = ["Journal", "JournalSettings", "JournalStatus"]
