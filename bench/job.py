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

    For the raw generator, in MDP 0.3: requests go to `services` in turn, over `connections` in
    turn; `idle` more connections of clients stay open after a request each. Before the warm-up,
    nothing is sent for `rest_s`. With a `rate`, requests are sent at that rate per second, whether
    or not earlier ones are answered, and time out after `timeout_s`. A worker takes `work_s` for a
    request.
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
    services: int = 1
    connections: int = 1
    idle: int = 0
    rest_s: float = 0.0
    rate: float = 0.0
    timeout_s: float = 30.0
    work_s: float = 0.0

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

    @property
    def service_names(self) -> Sequence[bytes]:
        """The names of the services, all of one length."""
        if self.services == 1:
            return [SERVICE]
        return [b"%b-%06d" % (SERVICE, number) for number in range(self.services)]

    @property
    def read_size_bytes(self) -> int:
        """How much the generator reads at once: enough to join large bodies from few pieces."""
        return min(max(262_144, self.body_size_bytes), 4 << 20)
