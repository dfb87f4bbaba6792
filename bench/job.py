"""Parameters of a run, for the processes that make and serve the load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

SERVICE = b"echo"


@dataclass(frozen=True, slots=True)
class Job:
    """Parameters of a run, passed to each process as a JSON argument.

    `window` requests are in flight, with bodies of `body_size_bytes`. The measured time is
    `seconds`, or up to three times that, until `requests` are answered. An MDP 0.3 worker announces
    `capacity`. `query` follows the URL of requite's own peers. The client reads the processor time
    of `broker_pid` (0: no broker) and `worker_pids`.
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
    query: str = ""

    @classmethod
    def from_argument(cls, text: str) -> Job:
        """Parse the result of `to_argument`."""
        return cls(**json.loads(text))

    def to_argument(self) -> str:
        """Return the job as a command-line argument."""
        return json.dumps(asdict(self))

    @property
    def body(self) -> bytes:
        """The body of every request and every reply."""
        return (b"hello world" * (self.body_size_bytes // 11 + 1))[: self.body_size_bytes]
