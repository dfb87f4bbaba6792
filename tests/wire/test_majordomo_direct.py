"""The direct dialect of MDP between peers in one process: commands are passed as objects, and
frames of another peer are never taken for one."""

from __future__ import annotations

from typing import Any

import pytest

from requite.protocols.majordomo.dialects import PeerRole, detect
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

# Commands, and the direction in which each is sent; all of them exist in MDP 0.3.
CASES: list[tuple[Any, str]] = [
    (ClientRequest(b"echo", BODY, 7, 250, 1, b"key", CALL), "from_client"),
    (ClientCancel(7), "from_client"),
    (ClientHeartbeat(2500), "from_client"),
    (ClientHeartbeat(2500), "to_client"),
    (ClientPartial(b"", BODY, 7, 3), "to_client"),
    (ClientFinal(b"", BODY, 7, 1, 2), "to_client"),
    (Ready(b"echo", 4, 2500, 0, NAME), "from_worker"),
    (WorkerRequest(b"", BODY, 9, 250, 2, b"key", CALL), "to_worker"),
    (WorkerPartial(b"", BODY, 9), "from_worker"),
    (WorkerFinal(b"", BODY, 9, 0), "from_worker"),
    (WorkerHeartbeat(2500), "from_worker"),
    (WorkerHeartbeat(2500), "to_worker"),
    (Disconnect(), "from_worker"),
    (Disconnect(), "to_worker"),
    (Progress(9, 100), "from_worker"),
    (DrainNotice(), "from_worker"),
    (WorkerCancel(9), "to_worker"),
]


@pytest.mark.parametrize("dialect", [DIRECT, MDP_03], ids=["direct", "0.3"])
@pytest.mark.parametrize(("command", "direction"), CASES)
def test_commands_survive_the_round_trip_as_in_0_3(dialect, command, direction):
    assert getattr(dialect, f"decode_{direction}")(dialect.encode(command)) == command


def test_it_has_the_version_and_capabilities_of_0_3():
    assert (DIRECT.version, DIRECT.has_ids, DIRECT.has_partials) == ("0.3", True, True)


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (ClientRequest(b"echo", BODY), PeerRole.CLIENT),
        (ClientHeartbeat(0), PeerRole.CLIENT),
        (Ready(b"echo"), PeerRole.WORKER),
        (Disconnect(), PeerRole.WORKER),
    ],
)
def test_role_and_dialect_are_detected_from_the_first_command(command, role):
    assert detect(command) == (role, DIRECT)


@pytest.mark.parametrize("frames", [[b"titanic.request", b"x"], [b"", b"x"], [b"echo"], []])
def test_frames_are_not_detected_as_a_command(frames):
    assert detect(frames) is None
