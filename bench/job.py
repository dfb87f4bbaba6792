"""What one run asks of the processes that make and serve the load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

SERVICE = b"echo"


@dataclass(frozen=True, slots=True)
class Job:
    """One run, handed to each process as a JSON argument.

    `window` requests are in flight; `body_size_bytes` is their body's size. The measured time is
    `seconds`, longer if fewer than `requests` were answered by then, but at most three times that.
    A 0.3 worker announces `capacity`. The client reads the processor time of `broker_pid`
    (0: there is none) and `worker_pids`.
    """

    port: int
    broker_pid: int
    worker_pids: Sequence[int]
    dialect: str
    window: int
    workers: int
    body_size_bytes: int
    capacity: int
    seconds: float
    requests: int
    warm_up_s: float

    @classmethod
    def from_argument(cls, text: str) -> Job:
        """Read what `to_argument` wrote."""
        return cls(**json.loads(text))

    def to_argument(self) -> str:
        """Write the job for a command line."""
        return json.dumps(asdict(self))

    @property
    def body(self) -> bytes:
        """The body that every request carries and every reply must return."""
        return (b"hello world" * (self.body_size_bytes // 11 + 1))[: self.body_size_bytes]
