"""Sample messages: at least one for each command of each dialect of MDP, with its frames.

The frames of MDP 0.1 and 0.2 are copied from the tables of 7/MDP and 18/MDP. The headers of MDP 0.3
are read from the examples in docs/protocols/mdp-0.3.md, so that page and code cannot diverge.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from requite.engine import Message
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Dialect,
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "protocols" / "mdp-0.3.md"
DIRECTIONS: Final = ("from_client", "to_client", "from_worker", "to_worker")

MDP_01: Final = by_version("0.1")
MDP_02: Final = by_version("0.2")
MDP_03: Final = by_version("0.3")
DIALECTS: Final = (MDP_01, MDP_02, MDP_03)


class Sample(NamedTuple):
    """A command, its frames, and the directions in which it may be sent."""

    dialect: Dialect
    directions: tuple[str, ...]
    command: Any
    message: Message

    def __str__(self) -> str:
        return f"{self.dialect.version}-{type(self.command).__name__}"


def decode(dialect: Dialect, direction: str, message: Message) -> Any:
    """Decode a message of the given direction."""
    return getattr(dialect, f"decode_{direction}")(message)


# --- MDP 0.1: 7/MDP -------------------------------------------------------------------------------
_C, _W = (b"", b"MDPC01"), (b"", b"MDPW01")
_SAMPLES_01: Final = [
    (("from_client",), ClientRequest(b"echo", [b"hello"]), [*_C, b"echo", b"hello"]),
    (("to_client",), ClientFinal(b"echo", [b"hi", b""]), [*_C, b"echo", b"hi", b""]),
    (("from_worker",), Ready(b"echo"), [*_W, b"\x01", b"echo"]),
    (
        ("to_worker",),
        WorkerRequest(b"\x00addr", [b"hello"]),
        [*_W, b"\x02", b"\x00addr", b"", b"hello"],
    ),
    (
        ("from_worker",),
        WorkerFinal(b"\x00addr", [b"hi", b"there"]),
        [*_W, b"\x03", b"\x00addr", b"", b"hi", b"there"],
    ),
    (("from_worker", "to_worker"), WorkerHeartbeat(), [*_W, b"\x04"]),
    (("from_worker", "to_worker"), Disconnect(), [*_W, b"\x05"]),
]

# --- MDP 0.2: 18/MDP ------------------------------------------------------------------------------
_SAMPLES_02: Final = [
    (
        ("from_client",),
        ClientRequest(b"echo", [b"hello"]),
        [b"MDPC02", b"\x01", b"echo", b"hello"],
    ),
    (("to_client",), ClientPartial(b"echo", [b"1"]), [b"MDPC02", b"\x02", b"echo", b"1"]),
    (("to_client",), ClientFinal(b"echo", [b""]), [b"MDPC02", b"\x03", b"echo", b""]),
    (("from_worker",), Ready(b"echo"), [b"MDPW02", b"\x01", b"echo"]),
    (
        ("to_worker",),
        WorkerRequest(b"\x00addr", [b"hello"]),
        [b"MDPW02", b"\x02", b"\x00addr", b"", b"hello"],
    ),
    (
        ("from_worker",),
        WorkerPartial(b"\x00addr", [b"1", b"2"]),
        [b"MDPW02", b"\x03", b"\x00addr", b"", b"1", b"2"],
    ),
    (
        ("from_worker",),
        WorkerFinal(b"\x00addr", [b""]),
        [b"MDPW02", b"\x04", b"\x00addr", b"", b""],
    ),
    (("from_worker", "to_worker"), WorkerHeartbeat(), [b"MDPW02", b"\x05"]),
    (("from_worker", "to_worker"), Disconnect(), [b"MDPW02", b"\x06"]),
]

# --- MDP 0.3: by the description of each example on its page --------------------------------------
_ID: Final = 0x000000070000002A
_BODY: Final = [b"hello"]
_CALL: Final = bytes.fromhex("a1b2c3d4e5f60718 000000000000002a")
_NEXT_CALL: Final = _CALL[:-1] + b"\x2b"
_TRACE: Final = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b701")
_INSTANCE: Final = bytes.fromhex("0f1e2d3c4b5a6978")
EXAMPLES_03: Final[dict[str, tuple[tuple[str, ...], Any]]] = {
    "REQUEST to echo, 2.5 s": (
        ("from_client",),
        ClientRequest(b"echo", _BODY, _ID, 2500, call_id=_CALL),
    ),
    "REQUEST, not idempotent, with key": (
        ("from_client",),
        ClientRequest(b"echo", _BODY, _ID + 1, 0, 1, b"order-17", _NEXT_CALL),
    ),
    "PARTIAL, index 0": (("to_client",), ClientPartial(b"", _BODY, _ID, 0)),
    "FINAL, OK after 1 attempt": (("to_client",), ClientFinal(b"", _BODY, _ID, 0, 1)),
    "FINAL, NO_SERVICE": (("to_client",), ClientFinal(b"", _BODY, _ID, 2, 0)),
    "CANCEL": (("from_client",), ClientCancel(_ID)),
    "HEARTBEAT of a client, 1 s": (("from_client", "to_client"), ClientHeartbeat(1000)),
    "READY, 16 places, 1 s, lease 30 s": (
        ("from_worker",),
        Ready(b"echo", 16, 1000, 30000, _INSTANCE),
    ),
    "REQUEST to a worker, 2.4 s left": (
        ("to_worker",),
        WorkerRequest(b"", _BODY, 9, 2400, 1, call_id=_CALL),
    ),
    "the same, attempt 2, with key": (
        ("to_worker",),
        WorkerRequest(b"", _BODY, 10, 0, 2, b"order-17", _NEXT_CALL),
    ),
    "PARTIAL of a worker": (("from_worker",), WorkerPartial(b"", _BODY, 9)),
    "FINAL of a worker": (("from_worker",), WorkerFinal(b"", _BODY, 9, 0)),
    "HEARTBEAT of a worker": (("from_worker", "to_worker"), WorkerHeartbeat(1000)),
    "DISCONNECT": (("from_worker", "to_worker"), Disconnect()),
    "PROGRESS, the worker's own lease": (("from_worker",), Progress(9, 0)),
    "DRAIN": (("from_worker",), DrainNotice()),
    "CANCEL to a worker": (("to_worker",), WorkerCancel(9)),
    "REQUEST_OF shop, with key": (
        ("to_worker",),
        WorkerRequest(b"", _BODY, 10, 0, 2, b"order-17", _NEXT_CALL, b"shop"),
    ),
    "DISCONNECT with a reason": (("to_worker",), Disconnect(b"no right")),
    "REQUEST to mmi.describe, 2.5 s": (
        ("from_client",),
        ClientRequest(b"mmi.describe", [b"orders"], _ID, 2500, call_id=_CALL),
    ),
    "FINAL, DENIED": (("to_client",), ClientFinal(b"", _BODY, _ID, 9, 0)),
    "REQUEST_TRACED to echo, 2.5 s": (
        ("from_client",),
        ClientRequest(b"echo", _BODY, _ID, 2500, call_id=_CALL, trace=_TRACE),
    ),
    "REQUEST_FOR alice to echo, 2.5 s": (
        ("from_client",),
        ClientRequest(b"echo", _BODY, _ID, 2500, call_id=_CALL, principal=b"alice"),
    ),
    "REQUEST_FOR alice, traced, key": (
        ("from_client",),
        ClientRequest(b"echo", _BODY, _ID + 1, 0, 1, b"order-17", _NEXT_CALL, b"alice", _TRACE),
    ),
    "REQUEST_TRACED to a worker": (
        ("to_worker",),
        WorkerRequest(b"", _BODY, 9, 2400, 1, call_id=_CALL, trace=_TRACE),
    ),
    "the same of shop, with key": (
        ("to_worker",),
        WorkerRequest(b"", _BODY, 10, 0, 2, b"order-17", _NEXT_CALL, b"shop", _TRACE),
    ),
}


def headers_on_page() -> dict[str, bytes]:
    """Return the headers in the section "Examples" of the specification, by description."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Examples\n")[2]
    lines = re.findall(r"^(.+?) +((?:[0-9a-f]{2} ?)+)$", section, flags=re.MULTILINE)
    return {description: bytes.fromhex(digits) for description, digits in lines}


def _samples_03() -> list[Sample]:
    headers = headers_on_page()
    return [
        Sample(MDP_03, directions, command, [headers[text], *getattr(command, "body", ())])
        for text, (directions, command) in EXAMPLES_03.items()
        if text in headers  # test_majordomo_golden.py fails if one is missing
    ]


SAMPLES: Final[list[Sample]] = [
    *(Sample(MDP_01, *row) for row in _SAMPLES_01),
    *(Sample(MDP_02, *row) for row in _SAMPLES_02),
    *_samples_03(),
]
