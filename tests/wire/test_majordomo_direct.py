"""MDP between peers in one process: commands as they are, and nobody else can send them."""

from __future__ import annotations

from typing import Any

import pytest

from requite.protocols.majordomo.dialects import Role, detect
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
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
from requite.protocols.majordomo.wire_03 import MDP_03
from requite.protocols.majordomo.wire_direct import DIRECT

CALL, NAME = b"c" * 16, b"i" * 8
BODY = [b"one", b"two"]

# How a command is encoded, who decodes it, and what comes out; the same calls for 0.3.
CASES: list[tuple[str, tuple[Any, ...], str, Any]] = [
    (
        "client_request",
        (b"echo", BODY, 7, 250, 1, b"key", CALL),
        "from_client",
        ClientRequest(b"echo", BODY, 7, 250, 1, b"key", CALL),
    ),
    ("client_cancel", (7,), "from_client", ClientCancel(7)),
    ("client_heartbeat", (2500,), "from_client", ClientHeartbeat(2500)),
    ("client_partial", (b"", BODY, 7, 3), "to_client", ClientPartial(b"", BODY, 7, 3)),
    ("client_final", (b"", BODY, 7, 1, 2), "to_client", ClientFinal(b"", BODY, 7, 1, 2)),
    ("ready", (b"echo", 4, 2500, 0, NAME), "from_worker", Ready(b"echo", 4, 2500, 0, NAME)),
    (
        "worker_request",
        (b"", BODY, 9, 250, 2, b"key", CALL),
        "to_worker",
        WorkerRequest(b"", BODY, 9, 250, 2, b"key", CALL),
    ),
    ("worker_partial", (b"", BODY, 9), "from_worker", WorkerPartial(b"", BODY, 9)),
    ("worker_final", (b"", BODY, 9, 0), "from_worker", WorkerFinal(b"", BODY, 9, 0)),
    ("worker_heartbeat", (2500,), "from_worker", WorkerHeartbeat(2500)),
    ("worker_heartbeat", (2500,), "to_worker", WorkerHeartbeat(2500)),
    ("disconnect", (), "from_worker", Disconnect()),
    ("progress", (9, 100), "from_worker", Progress(9, 100)),
    ("drain", (), "from_worker", DrainNotice()),
    ("worker_cancel", (9,), "to_worker", WorkerCancel(9)),
]


@pytest.mark.parametrize("dialect", [DIRECT, MDP_03], ids=["direct", "0.3"])
@pytest.mark.parametrize(("encode", "fields", "decode", "command"), CASES)
def test_it_says_what_0_3_says(dialect, encode, fields, decode, command):
    message = getattr(dialect, encode)(*fields)
    assert getattr(dialect, f"decode_{decode}")(message) == command


def test_it_has_all_that_0_3_has():
    assert (DIRECT.version, DIRECT.has_ids, DIRECT.has_partials) == ("0.3", True, True)


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (ClientRequest(b"echo", BODY), Role.CLIENT),
        (ClientHeartbeat(0), Role.CLIENT),
        (Ready(b"echo"), Role.WORKER),
        (Disconnect(), Role.WORKER),
    ],
)
def test_a_broker_knows_it_by_its_first_command(command, role):
    assert detect(command) == (role, DIRECT)


@pytest.mark.parametrize("frames", [[b"titanic.request", b"x"], [b"", b"x"], [b"echo"], []])
def test_frames_are_never_taken_for_a_command(frames):
    assert detect(frames) is None
