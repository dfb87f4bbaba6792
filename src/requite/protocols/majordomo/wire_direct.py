"""MDP 0.3 between peers in one process: the messages are command objects, without encoding.

A dialect for connections that pass objects (`requite.framing.handover`). Bytes from a network never
decode into it: framings produce lists, and these are commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientRequest,
    Dialect,
    WorkerFinal,
    WorkerRequest,
)


class Direct:
    """See `Dialect`. Engines behave as in 0.3."""

    version: str = "0.3"
    has_ids: bool = True
    has_partials: bool = True

    def decode_from_client(self, message: Any) -> Any:
        return message

    def decode_to_client(self, message: Any) -> Any:
        return message

    def decode_from_worker(self, message: Any) -> Any:
        return message

    def decode_to_worker(self, message: Any) -> Any:
        return message

    def encode(self, command: Any) -> Any:
        return command

    def worker_request(self, *fields: Any) -> Any:
        """Return the command with these fields."""
        return WorkerRequest(*fields)

    def client_final(self, *fields: Any) -> Any:
        """Return the command with these fields."""
        return ClientFinal(*fields)

    def client_request(self, service: bytes, body: Sequence[bytes], *rest: Any) -> Any:
        """Return the command, with a copy of `body`, which is the caller's."""
        return ClientRequest(service, [*body], *rest)

    def worker_final(self, address: bytes, body: Sequence[bytes], *rest: Any) -> Any:
        """Return the command, with a copy of `body`, which is the handler's."""
        return WorkerFinal(address, [*body], *rest)


DIRECT: Final[Dialect] = Direct()
