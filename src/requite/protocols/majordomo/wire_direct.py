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


def _as_it_is(message: Any) -> Any:
    return message


class Direct:
    """See `Dialect`. Engines behave as in 0.3."""

    version: str = "0.3"
    has_ids: bool = True
    has_partials: bool = True

    decode_from_client = staticmethod(_as_it_is)
    decode_to_client = staticmethod(_as_it_is)
    decode_from_worker = staticmethod(_as_it_is)
    decode_to_worker = staticmethod(_as_it_is)
    encode = staticmethod(_as_it_is)
    worker_request: Any = staticmethod(WorkerRequest)
    client_final: Any = staticmethod(ClientFinal)

    @staticmethod
    def client_request(service: bytes, body: Sequence[bytes], *rest: Any) -> Any:
        """Return the command, with a copy of `body`, which is the caller's."""
        return ClientRequest(service, [*body], *rest)

    @staticmethod
    def worker_final(address: bytes, body: Sequence[bytes], *rest: Any) -> Any:
        """Return the command, with a copy of `body`, which is the handler's."""
        return WorkerFinal(address, [*body], *rest)


DIRECT: Final[Dialect] = Direct()
