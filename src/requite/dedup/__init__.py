"""Services that run each request once: `@service(name, idempotent=Dedup(...))`.

engine.py    the state machine of a request and its repetitions; no I/O
inputs.py    the engine's own inputs and effects
entries.py   its tables: keys, segments of the log
keeping.py   retention: window, number and size of replies
records.py   the encoding of log records
policy.py    settings and statistics
store.py     the log, in a thread
gate.py      the layer between a worker and its handlers
dedup.py     `Dedup`, which connects them
"""

from requite.dedup.dedup import Dedup
from requite.dedup.policy import DedupPolicy, DedupStats

__all__ = ["Dedup", "DedupPolicy", "DedupStats"]
