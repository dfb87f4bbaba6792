"""The options that make a server one of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.options import INTERVAL, complete_ones, within
from requite.errors import ConfigurationError
from requite.protocols.binarystar.policy import HEARTBEAT_S_DEFAULT

if TYPE_CHECKING:
    from requite.pair import Pair

_PAIR: Final = Group("Pair", sort_key=50)


def _listen_at(address: str) -> None:
    from requite.pair.ends import listen_at

    for place in complete_ones([address]):
        listen_at(place)


def _connect_to(address: str) -> None:
    from requite.pair.ends import stay_connected_to

    stay_connected_to(address)


@Parameter(name="*", group=_PAIR)
@dataclass(frozen=True, slots=True)
class Pairing:
    """The role of a server in its pair, and its connection to the peer."""

    primary: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Be the server that is active when both start. Requires --pair-bind and --peer.",
        ),
    ] = False
    backup: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Be the server that takes over when the primary fails.",
        ),
    ] = False
    pair_bind: Annotated[
        str | None,
        Parameter(
            metavar="ADDRESS",
            validator=within(_listen_at),
            help="Address for the peer and for `requite pair`: `tcp://HOST:PORT`, "
            "`tls://HOST:PORT` or `ipc:///PATH`. Best on a dedicated network.",
        ),
    ] = None
    peer: Annotated[
        str | None,
        Parameter(metavar="ADDRESS", validator=within(_connect_to), help="The peer's --pair-bind."),
    ] = None
    pair_heartbeat: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=INTERVAL,
            help="Interval between heartbeats. After two intervals of silence the peer takes over, "
            "once a client sends it a request. Set the same value on both servers.",
        ),
    ] = HEARTBEAT_S_DEFAULT

    @property
    def links(self) -> tuple[str, ...]:
        """The addresses of both ends of the link to the peer, as far as they are given."""
        return tuple(filter(None, (self.pair_bind, self.peer)))

    def make(self, links: Sequence[str], *, insecure: bool = False) -> Pair | None:
        """Return the `Pair`; None for a server without a peer. `links`: those of this object, with
        the options of TLS. Raises `ConfigurationError`."""
        if not (self.primary or self.backup):
            if self.pair_bind or self.peer or self.pair_heartbeat != HEARTBEAT_S_DEFAULT:
                raise ConfigurationError(
                    "--pair-bind, --peer and --pair-heartbeat require --primary or --backup"
                )
            return None
        if self.primary and self.backup:
            raise ConfigurationError("a server is --primary or --backup, not both")
        if len(links) < 2:
            raise ConfigurationError("--primary and --backup require both --pair-bind and --peer")
        bind, peer = links
        from requite.pair import Pair

        return Pair(
            "primary" if self.primary else "backup",
            bind=bind,
            peer=peer,
            heartbeat=self.pair_heartbeat,
            insecure=insecure,
        )


ALONE: Final = Pairing()
