"""Services that run each request once: `@service(name, idempotent=Dedup(...))`.

engine.py    what becomes of a request and its repetitions; no I/O
inputs.py    what it is told, and what it answers
entries.py   its tables: keys, segments of the log
keeping.py   how much of that is kept
records.py   the bytes on the log
policy.py    what may be set and seen
store.py     the log, in a thread
gate.py      between a worker and its handlers
dedup.py     `Dedup`, which joins them
"""

from requite.dedup.dedup import Dedup
from requite.dedup.policy import DedupPolicy, DedupStats

__all__ = ["Dedup", "DedupPolicy", "DedupStats"]
