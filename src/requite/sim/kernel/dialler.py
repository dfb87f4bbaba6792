"""Dialling on the simulated network, as `requite.shell.aio_dialler` does with sockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from requite.errors import TransportError
from requite.shell.connections import AddressList
from requite.shell.link import Link
from requite.sim.kernel.process import Process
from requite.transport.address import Address, HostAddress, InprocAddress

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream


class SimDialler:
    """Opens the connections that a process wants, one at a time; `opened` gets each stream."""

    def __init__(
        self, process: Process, addresses: AddressList, opened: Callable[[SimStream], Link]
    ) -> None:
        self._process = process
        self._addresses = addresses
        self._opened = opened
        self._dialling = False

    def connect(self) -> None:
        """Want one more connection."""
        self._addresses.want()
        self.go_on()

    def go_on(self) -> None:
        """Dial if a connection is wanted and no dial is pending."""
        if not self._dialling:
            self._go_on()

    def _go_on(self) -> None:
        self._dialling = self._addresses.wanted > 0
        if self._dialling:
            self._process.later(self._addresses.pause_s(), self._dial)

    def _dial(self) -> None:
        if self._process.drained:
            return
        at = self._addresses.current
        self._process.network.dial(
            self._process, _node(at), partial(self._connected, at), partial(self._not_connected, at)
        )

    def _connected(self, at: Address, stream: SimStream) -> None:
        self._process.adopt(stream, lambda: self._open(at, stream))

    def _open(self, at: Address, stream: SimStream) -> None:
        if self._process.drained:
            del self._process.streams[stream]
            stream.die(politely=False)
            return
        self._addresses.opened(at, self._opened(stream))
        self._go_on()

    def _not_connected(self, at: Address, why: str) -> None:
        self._process.later(0.0, self._failed, at, why)

    def _failed(self, at: Address, why: str) -> None:
        self._addresses.failed(at, TransportError(why))
        self._go_on()


def _node(address: Address) -> str:
    """Return the network's name of an address."""
    assert isinstance(address, HostAddress | InprocAddress)
    return address.host if isinstance(address, HostAddress) else address.name
