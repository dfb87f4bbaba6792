"""What connects an engine to its peers: where it dials and listens, and what is spoken there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from requite.framing.base import Framing
from requite.shell.keeping import Endpoint, no_framing
from requite.shell.link import LinkLimits
from requite.transport.address import Address


class Wires(NamedTuple):
    """What a plan gives to a shell.

    An engine that asks for its connections has `dial_to`, and `make_framing` for what comes of it.
    One that is connected to many has endpoints: those to `keep` up, and those to `listen` at.

    `read_first`: nothing in a reply tells which request it is for, so what has come has to be read
    before the next request leaves. A client whose threads read only while they wait has to look.
    """

    make_framing: Callable[[], Framing] = no_framing
    dial_to: Sequence[Address] = ()
    keep: Sequence[Endpoint] = ()
    listen: Sequence[Endpoint] = ()
    limits: LinkLimits = LinkLimits()
    read_first: bool = False
