"""What happened to requests, on disk: logs that a pipeline, or a person, reads afterwards.

    journal.py   Journal: a chronicle for an engine, and the thread that writes it down
    settings.py  how often, how much; and how it goes
    scribe.py    takes rows, writes them, lives with a disk that fails
    writer.py    rows to a log, segment by segment
    encode.py    rows to blocks; strings.py interns their strings
    clock.py     which wall time an instant was
    folder.py    which logs there are
    blocks.py    what one record of a log holds, column by column: data, for every decoder
    meaning.py   which events a row stands for

The bytes are specified in docs/protocols/log-format.md.
"""

from requite.journal.journal import Journal
from requite.journal.settings import JournalSettings, JournalStatus

__all__ = ["Journal", "JournalSettings", "JournalStatus"]
