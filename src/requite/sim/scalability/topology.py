"""Topologies: the channels, which end of each dials, and the shapes that a run may draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise, product
from random import Random
from typing import Final, NamedTuple

FRONT: Final = "front"
BACK: Final = "back"


class Edge(NamedTuple):
    """A channel: `upper` sends requests over it, and `lower` serves them.

    The end that does not dial listens, at a port for this kind of channel (`node:port`). The upper
    end ranks the channel by `priority` and `weight`.
    """

    upper: str
    lower: str
    upper_dials: bool = True
    priority: int = 1
    weight: int = 1

    @property
    def dialler(self) -> str:
        """The process that dials."""
        return self.upper if self.upper_dials else self.lower

    @property
    def listener(self) -> str:
        """The process that listens."""
        return self.lower if self.upper_dials else self.upper

    @property
    def port(self) -> str:
        """The port of the listener; channels of equal rank share one."""
        return FRONT if self.upper_dials else f"{BACK}-{self.priority}-{self.weight}"

    @property
    def address(self) -> str:
        """The address that the dialler connects to."""
        return f"{self.listener}:{self.port}"

    def __str__(self) -> str:
        way = "→" if self.upper_dials else "←"
        rank = f" priority={self.priority}" if self.priority != 1 else ""
        share = f" weight={self.weight}" if self.weight != 1 else ""
        return f"{self.upper} {way} {self.lower}{rank}{share}"


_PRIORITIES: Final = (1, 1, 1, 2, 3)
_WEIGHTS: Final = (1, 1, 2, 5)


class Shape(StrEnum):
    """The kinds of topologies."""

    DIRECT = "direct"  # every client connected to every worker
    CHAIN = "chain"  # one to four devices in a row
    MESH = "mesh"  # one to three layers of devices, each connected to all of the next layer
    LOOP = "loop"  # one or two devices that forward to each other; all requests can reach a worker


class Dials(StrEnum):
    """Which end of a channel dials the other."""

    UPPER = "upper"
    LOWER = "lower"
    EITHER = "either"


class Topology(NamedTuple):
    """The devices, in layers, and all channels."""

    layers: Sequence[Sequence[str]]
    edges: list[Edge]


def draw_topology(
    rng: Random, shape: Shape, clients: Sequence[str], workers: Sequence[str], *, ranked: bool
) -> Topology:
    """Draw a topology. `ranked`: channels may have priorities and weights, except in a loop: if the
    loop had priority, no request would ever reach a worker."""
    ranked = ranked and shape is not Shape.LOOP
    widths = _draw_widths(rng, shape)
    layers = _layers(clients, widths, workers)
    pairs = [pair for upper, lower in pairwise(layers) for pair in product(upper, lower)]
    if shape is Shape.LOOP:
        pairs = [*_draw_loop(rng, pairs, layers)]
    elif ranked:  # gives clients a second path
        pairs += [(client, worker) for client, worker in product(clients, workers[:1])]
    dials = rng.choice(tuple(Dials))
    edges = [_draw_edge(rng, upper, lower, dials, ranked) for upper, lower in dict.fromkeys(pairs)]
    return Topology(layers[1:-1], edges)


def _draw_widths(rng: Random, shape: Shape) -> list[int]:
    """Draw how many devices each layer has."""
    match shape:
        case Shape.DIRECT:
            return []
        case Shape.CHAIN:
            return [1] * rng.randint(1, 4)
        case Shape.MESH:
            return [rng.randint(2, 3) for _ in range(rng.choice((1, 1, 2, 3)))]
        case Shape.LOOP:
            return [rng.choice((1, 2, 2))]


def _layers(
    clients: Sequence[str], widths: Sequence[int], workers: Sequence[str]
) -> list[Sequence[str]]:
    names = (f"device-{i + 1}" for i in range(sum(widths)))
    return [clients, *([next(names) for _ in range(width)] for width in widths), workers]


def _draw_loop(
    rng: Random, pairs: Sequence[tuple[str, str]], layers: Sequence[Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the channels of a loop: devices forward to each other (a single one to itself), and one
    may have no worker."""
    devices, workers = layers[1], layers[2]
    without = devices[-1] if len(devices) > 1 and rng.random() < 0.5 else None
    yield from (pair for pair in pairs if pair[0] != without or pair[1] not in workers)
    if len(devices) == 1:
        yield devices[0], devices[0]
    else:
        yield from ((one, other) for one in devices for other in devices if one != other)


def _draw_edge(rng: Random, upper: str, lower: str, dials: Dials, ranked: bool) -> Edge:
    upper_dials = rng.random() < 0.5 if dials is Dials.EITHER else dials is Dials.UPPER
    if not ranked:
        return Edge(upper, lower, upper_dials)
    return Edge(upper, lower, upper_dials, rng.choice(_PRIORITIES), rng.choice(_WEIGHTS))
