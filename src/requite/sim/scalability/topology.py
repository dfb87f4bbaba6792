"""Who is connected with whom, over which channel requests go, and who dials."""

from __future__ import annotations

from typing import Final, NamedTuple

FRONT: Final = "front"
BACK: Final = "back"


class Edge(NamedTuple):
    """A channel: `upper` sends requests over it, and `lower` serves them.

    Whichever end does not dial listens, at a port that says for what (`node:port`). `priority` and
    `weight` are what the upper end makes of the channel.
    """

    upper: str
    lower: str
    upper_dials: bool = True
    priority: int = 1
    weight: int = 1

    @property
    def dialler(self) -> str:
        """Who dials."""
        return self.upper if self.upper_dials else self.lower

    @property
    def listener(self) -> str:
        """Who is dialled."""
        return self.lower if self.upper_dials else self.upper

    @property
    def port(self) -> str:
        """The port at which the listener listens: channels that it treats alike share one."""
        return FRONT if self.upper_dials else f"{BACK}-{self.priority}-{self.weight}"

    @property
    def address(self) -> str:
        """What the dialler dials."""
        return f"{self.listener}:{self.port}"

    def __str__(self) -> str:
        way = "→" if self.upper_dials else "←"
        rank = f" priority={self.priority}" if self.priority != 1 else ""
        share = f" weight={self.weight}" if self.weight != 1 else ""
        return f"{self.upper} {way} {self.lower}{rank}{share}"
