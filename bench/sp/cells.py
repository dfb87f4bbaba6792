"""The lines of each table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.builds import Build
from bench.sp.parties import (
    ASYNC_CLIENT,
    CLIENT,
    DEVICE,
    NNG_CLIENT,
    NNG_SERVICE,
    PYNNG_CLIENT,
    PYNNG_DEVICE,
    PYNNG_SERVICE,
    PYNNG_TASKS,
    PYNNG_THREADS,
    WORKER,
    Party,
    layer,
)

SIZES: Final = (11, 1024)
WINDOW: Final = 64


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: client, service and device. Python programs run with `python`."""

    name: str
    client: Party
    service: Party
    device: Party | None = None
    python: str = sys.executable

    @property
    def parties(self) -> list[Party]:
        """Client, service and device, if any."""
        return [each for each in (self.client, self.service, self.device) if each]

    def lack(self) -> str | None:
        """Return the first thing that is missing, if any."""
        return next((text for each in self.parties if (text := each.lack())), None)

    def in_builds(self, builds: Sequence[Build]) -> list[Line]:
        """Return a line per build if all of it is requite, and else the line itself."""
        if not all(each.is_requite for each in self.parties):
            return [self]
        return [replace(self, name=each.name(self.name), python=each.python) for each in builds]


@dataclass(frozen=True, slots=True)
class Section:
    """A table: lines that are compared under one condition; `baseline` names one of them."""

    title: str
    window: int
    baseline: str
    lines: tuple[Line, ...]

    def in_builds(self, builds: Sequence[Build]) -> list[Line]:
        """Return the lines, those of requite in each build."""
        return [each for line in self.lines for each in line.in_builds(builds)]

    @property
    def has_device(self) -> bool:
        """Whether the lines have a device between client and service."""
        return any(line.device is not None for line in self.lines)


@dataclass(frozen=True, slots=True)
class Cell:
    """A section with bodies of one size."""

    section: Section
    body_size_bytes: int

    def __str__(self) -> str:
        return f"{self.section.title}, {size_text(self.body_size_bytes)}"


def size_text(size: int) -> str:
    """Write a size in bytes with its unit."""
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


MANY: Final = Section(
    f"{WINDOW} in flight",
    WINDOW,
    "nng in C",
    (
        Line("AsyncClient, Worker", ASYNC_CLIENT, WORKER),
        Line("nng in C", NNG_CLIENT, NNG_SERVICE),
        Line("pynng, a thread per context", PYNNG_THREADS, PYNNG_SERVICE),
        Line("pynng, a task per context", PYNNG_TASKS, PYNNG_SERVICE),
        Line("AsyncClient, nng in C", ASYNC_CLIENT, NNG_SERVICE),
        Line("nng in C, Worker", NNG_CLIENT, WORKER),
    ),
)
ONE: Final = Section(
    "One at a time",
    1,
    "pynng",
    (
        Line("AsyncClient, Worker", ASYNC_CLIENT, WORKER),
        Line("Client, Worker", CLIENT, WORKER),
        Line("nng in C", NNG_CLIENT, NNG_SERVICE),
        Line("pynng", PYNNG_CLIENT, PYNNG_SERVICE),
        Line("AsyncClient, nng in C", ASYNC_CLIENT, NNG_SERVICE),
        Line("Client, nng in C", CLIENT, NNG_SERVICE),
        Line("nng in C, Worker", NNG_CLIENT, WORKER),
    ),
)
MANY_THROUGH: Final = Section(
    f"Through a device, {WINDOW} in flight",
    WINDOW,
    "all of pynng",
    (
        Line("all of requite", ASYNC_CLIENT, WORKER, DEVICE),
        Line("all of pynng", PYNNG_THREADS, PYNNG_SERVICE, PYNNG_DEVICE),
        Line("requite's device between ends in C", NNG_CLIENT, NNG_SERVICE, DEVICE),
        Line("pynng's device between ends in C", NNG_CLIENT, NNG_SERVICE, PYNNG_DEVICE),
    ),
)
ONE_THROUGH: Final = Section(
    "Through a device, one at a time",
    1,
    "all of pynng",
    (
        Line("all of requite", ASYNC_CLIENT, WORKER, DEVICE),
        Line("all of pynng", PYNNG_CLIENT, PYNNG_SERVICE, PYNNG_DEVICE),
        Line("requite's device between ends in C", NNG_CLIENT, NNG_SERVICE, DEVICE),
        Line("pynng's device between ends in C", NNG_CLIENT, NNG_SERVICE, PYNNG_DEVICE),
    ),
)

_SOCKETS_CLIENT: Final = layer("sockets-client")
_SOCKETS_SERVICE: Final = layer("sockets-service")
LAYERS: Final = Section(
    f"What the layers cost, {WINDOW} in flight",
    WINDOW,
    "sockets",
    (
        Line("sockets", _SOCKETS_CLIENT, _SOCKETS_SERVICE),
        Line("client: and framing", layer("framing-client"), _SOCKETS_SERVICE),
        Line("client: and host and engine", layer("shell-client"), _SOCKETS_SERVICE),
        Line("client: AsyncClient", ASYNC_CLIENT, _SOCKETS_SERVICE),
        Line("service: and framing", _SOCKETS_CLIENT, layer("framing-service")),
        Line("service: and host and engine", _SOCKETS_CLIENT, layer("shell-service")),
        Line("service: Worker", _SOCKETS_CLIENT, WORKER),
    ),
)
SECTIONS: Final = (MANY, ONE, MANY_THROUGH, ONE_THROUGH, LAYERS)
