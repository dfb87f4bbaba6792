"""Inputs of Titanic in addition to those of `requite.engine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from requite.errors import CallError
from requite.request import Reply


class Asked(NamedTuple):
    """A request for one of Titanic's services; `Finished(token, frames)` answers it.

    `key`: its idempotency key (MDP 0.3); b"": none. `owner`: the principal that sent it, in UTF-8;
    b"": the broker names none. `trace`: its trace context, b"" without one.
    """

    token: Any
    service: str
    frames: Sequence[bytes]
    key: bytes = b""
    owner: bytes = b""
    trace: bytes = b""


class Answered(NamedTuple):
    """The outcome of the `Submit` with that token."""

    token: Any
    outcome: Reply | CallError
