"""The matrix of cells, and its short form."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

Kind = Literal["broker", "native", "journal", "tls", "curve", "access", "end-to-end"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition: requests in flight from one client, workers, bytes of body."""

    kind: Kind
    window: int
    workers: int
    body_size_bytes: int

    def __str__(self) -> str:
        workers = f"{self.workers} worker" + "s" * (self.workers > 1)
        return f"{self.window} in flight, {workers}, {self.body}"

    @property
    def body(self) -> str:
        """The size of the body, with its unit."""
        size = self.body_size_bytes
        return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


# End to end each worker is a Python process: 64 of them would only measure the scheduler.
FULL = [
    *(Cell("broker", *each) for each in product((1, 64, 256), (1, 4, 64), (11, 1024))),
    *(Cell("native", *each) for each in ((64, 4, 11), (256, 64, 11))),
    *(Cell("journal", *each) for each in product((1, 64), (4,), (11,))),
    *(Cell("tls", *each) for each in product((1, 64), (4,), (11, 1024))),
    *(Cell("curve", *each) for each in product((64,), (4,), (11, 1024))),
    *(Cell("access", *each) for each in product((1, 64), (4,), (11,))),
    *(Cell("end-to-end", *each) for each in product((1, 64, 256), (4,), (11, 1024))),
]
QUICK = [
    Cell("broker", 1, 1, 11),
    Cell("broker", 64, 4, 11),
    Cell("broker", 256, 64, 1024),
    Cell("native", 64, 4, 11),
    Cell("journal", 64, 4, 11),
    Cell("tls", 64, 4, 11),
    Cell("curve", 64, 4, 11),
    Cell("access", 64, 4, 11),
    Cell("end-to-end", 1, 4, 11),
    Cell("end-to-end", 64, 4, 11),
]
