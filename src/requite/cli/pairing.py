"""The options that make a server one of a pair, of which one serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite.errors import ConfigurationError
from requite.protocols.binarystar.policy import HEARTBEAT_S_DEFAULT

if TYPE_CHECKING:
    from requite.pair import Pair

_PAIR: Final = Group("Pair", sort_key=50)


@Parameter(name="*", group=_PAIR)
@dataclass(frozen=True, slots=True)
class Pairing:
    """Which of two servers this is, and how it talks to the other one."""

    primary: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Be the one of two that serves when both are started. Takes --pair-bind and "
            "--peer.",
        ),
    ] = False
    backup: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Be the other one, which serves when the first one is gone.",
        ),
    ] = False
    pair_bind: Annotated[
        str | None,
        Parameter(
            metavar="ADDRESS",
            help="Where to listen for the other one, and for `requite pair`: `tcp://HOST:PORT` or "
            "`ipc:///PATH`. Best on a network of their own.",
        ),
    ] = None
    peer: Annotated[
        str | None, Parameter(metavar="ADDRESS", help="The --pair-bind of the other one.")
    ] = None
    pair_heartbeat: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            help="How often the two speak. The other one takes over two of these after the last "
            "word, when a client asks it. Give both the same.",
        ),
    ] = HEARTBEAT_S_DEFAULT

    def make(self) -> Pair | None:
        """Return this server's half of the pair, None for a server that is alone. Raises
        `ConfigurationError`."""
        if not (self.primary or self.backup):
            if self.pair_bind or self.peer or self.pair_heartbeat != HEARTBEAT_S_DEFAULT:
                raise ConfigurationError(
                    "--pair-bind, --peer and --pair-heartbeat take --primary or --backup"
                )
            return None
        if self.primary and self.backup:
            raise ConfigurationError("a server is --primary or --backup, not both")
        if not self.pair_bind or not self.peer:
            raise ConfigurationError("one of a pair takes both --pair-bind and --peer")
        from requite.pair import Pair

        return Pair(
            "primary" if self.primary else "backup",
            bind=self.pair_bind,
            peer=self.peer,
            heartbeat=self.pair_heartbeat,
        )


ALONE: Final = Pairing()
