"""The channels between processes: their direction, and which end dials."""

from __future__ import annotations

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
