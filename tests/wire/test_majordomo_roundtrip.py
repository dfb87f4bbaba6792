"""Whatever can be encoded is decoded to the same command; what cannot is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.wire.majordomo_samples import MDP_01, MDP_02, MDP_03, decode

from requite.errors import LocalViolation
from requite.protocols.majordomo.wire import (
    U32_MAX,
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
    timeout_ms,
)

u8 = st.integers(0, 255)
u32 = st.integers(0, U32_MAX)
u64 = st.integers(0, (1 << 64) - 1)
names = st.binary(min_size=1, max_size=255)
keys = st.just(b"") | st.binary(max_size=255)
addresses = st.binary(max_size=255)
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
nothing = st.just(b"")


def of(command: Callable[..., Any], *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw commands whose first fields are drawn and whose others have their defaults."""
    return st.tuples(*fields).map(lambda drawn: command(*drawn))


# The directions a command may travel in, and what it may consist of where everything is carried.
COMMANDS_03: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = {
    ("from_client",): [
        of(ClientRequest, names, bodies, u64, u32, st.integers(0, 1), keys),
        of(ClientCancel, u64),
    ],
    ("to_client",): [
        of(ClientPartial, nothing, bodies, u64, u32),
        of(ClientFinal, nothing, bodies, u64, st.integers(0, 7), u8),
    ],
    ("from_client", "to_client"): [of(ClientHeartbeat, u32)],
    ("from_worker",): [
        of(Ready, names, st.integers(1, 65535), u32, u32),
        of(WorkerPartial, nothing, bodies, u64),
        of(WorkerFinal, nothing, bodies, u64, st.sampled_from([0, 1, 7])),
        of(Progress, u64, u32),
        of(DrainNotice),
    ],
    ("to_worker",): [
        of(WorkerRequest, nothing, bodies, u64, u32, u8, keys),
        of(WorkerCancel, u64),
    ],
    ("from_worker", "to_worker"): [of(WorkerHeartbeat, u32), of(Disconnect)],
}
COMMANDS_01: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = {
    ("from_client",): [of(ClientRequest, names, bodies)],
    ("to_client",): [of(ClientFinal, names, bodies)],
    ("from_worker",): [of(Ready, names), of(WorkerFinal, addresses, bodies)],
    ("to_worker",): [of(WorkerRequest, addresses, bodies)],
    ("from_worker", "to_worker"): [of(WorkerHeartbeat), of(Disconnect)],
}
COMMANDS_02: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = COMMANDS_01 | {
    ("to_client",): [*COMMANDS_01["to_client",], of(ClientPartial, names, bodies)],
    ("from_worker",): [
        *COMMANDS_01["from_worker",],
        of(WorkerPartial, addresses, bodies),
    ],
}


def travelling(
    commands: dict[tuple[str, ...], list[st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[str, Any]]:
    """Draw a direction and a command that travels in it."""
    return st.one_of(
        [
            st.tuples(st.sampled_from(directions), strategy)
            for directions, strategies in commands.items()
            for strategy in strategies
        ]
    )


def comes_through(dialect: Dialect, direction: str, command: Any) -> None:
    decoded = decode(dialect, direction, dialect.encode(command))
    assert decoded == command
    assert type(decoded) is type(command)


@requirement("mdp03:body")
@given(travelling(COMMANDS_03))
def test_commands_of_0_3_come_through(sent: tuple[str, Any]) -> None:
    comes_through(MDP_03, *sent)


@given(travelling(COMMANDS_02))
def test_commands_of_0_2_come_through(sent: tuple[str, Any]) -> None:
    comes_through(MDP_02, *sent)


@given(travelling(COMMANDS_01))
def test_commands_of_0_1_come_through(sent: tuple[str, Any]) -> None:
    comes_through(MDP_01, *sent)


@pytest.mark.parametrize("dialect", [MDP_01, MDP_02], ids=["0.1", "0.2"])
def test_what_the_standard_dialects_do_not_carry_is_dropped(dialect: Dialect) -> None:
    body = [b"hello"]
    request = dialect.encode(ClientRequest(b"echo", body, 7, 2500, 1, b"key"))
    assert dialect.decode_from_client(request) == ClientRequest(b"echo", body)
    final = dialect.encode(ClientFinal(b"echo", body, 7, 2, 3))
    assert dialect.decode_to_client(final) == ClientFinal(b"echo", body)
    assert dialect.decode_from_worker(dialect.encode(Ready(b"echo", 16, 1000, 30))) == Ready(
        b"echo"
    )
    handed = dialect.encode(WorkerRequest(b"addr", body, 9, 2400, 2, b"key"))
    assert dialect.decode_to_worker(handed) == WorkerRequest(b"addr", body)
    done = dialect.encode(WorkerFinal(b"addr", body, 9, 1))
    assert dialect.decode_from_worker(done) == WorkerFinal(b"addr", body)
    assert dialect.decode_to_worker(dialect.encode(WorkerHeartbeat(1000))) == WorkerHeartbeat()


def test_replies_and_addresses_are_not_carried_by_0_3() -> None:
    final = MDP_03.encode(ClientFinal(b"echo", [b"hi"], 7, 0, 1))
    assert MDP_03.decode_to_client(final) == ClientFinal(b"", [b"hi"], 7, 0, 1)
    handed = MDP_03.encode(WorkerRequest(b"addr", [b"hi"], 9, 0, 1, b""))
    assert MDP_03.decode_to_worker(handed) == WorkerRequest(b"", [b"hi"], 9)


# --- what cannot be said --------------------------------------------------------------------------
LACKING = [
    ClientCancel(1),
    ClientHeartbeat(1000),
    Progress(1, 0),
    DrainNotice(),
    WorkerCancel(1),
]


@pytest.mark.parametrize("command", LACKING, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("dialect", [MDP_01, MDP_02], ids=["0.1", "0.2"])
def test_commands_that_a_dialect_lacks_are_refused(dialect: Dialect, command: Any) -> None:
    with pytest.raises(LocalViolation, match=f"MDP {dialect.version} has no "):
        dialect.encode(command)


@pytest.mark.parametrize("command", [ClientPartial(b"s", [b""]), WorkerPartial(b"a", [b""])])
def test_0_1_has_no_partials(command: Any) -> None:
    assert not MDP_01.has_partials
    with pytest.raises(LocalViolation, match=r"MDP 0\.1 has no PARTIAL"):
        MDP_01.encode(command)


@requirement("mdp03:body")
@pytest.mark.parametrize(
    "command",
    [
        ClientRequest(b"echo", []),
        ClientPartial(b"echo", [], 1, 0),
        ClientFinal(b"echo", []),
        WorkerRequest(b"addr", []),
        WorkerPartial(b"addr", []),
        WorkerFinal(b"addr", []),
    ],
    ids=lambda c: type(c).__name__,
)
@pytest.mark.parametrize("dialect", [MDP_02, MDP_03], ids=["0.2", "0.3"])
def test_a_body_without_frames_is_refused(dialect: Dialect, command: Any) -> None:
    with pytest.raises(LocalViolation, match="at least one frame"):
        dialect.encode(command)


@requirement("mdp03:header")
@pytest.mark.parametrize(
    "command",
    [
        ClientRequest(b"echo", [b""], 1 << 64),
        ClientRequest(b"echo", [b""], -1),
        ClientRequest(b"echo", [b""], 1, U32_MAX + 1),
        ClientRequest(b"e" * 256, [b""]),
        ClientRequest(b"echo", [b""], key=b"k" * 256),
        ClientPartial(b"", [b""], 1, -1),
        ClientFinal(b"", [b""], 1 << 64),
        ClientFinal(b"", [b""], 1, 9),
        ClientFinal(b"", [b""], 1, -1),
        ClientFinal(b"", [b""], 1, 0, 256),
        ClientCancel(-1),
        ClientHeartbeat(U32_MAX + 1),
        Ready(b"e" * 256),
        Ready(b"echo", 0),
        Ready(b"echo", 65536),
        WorkerRequest(b"", [b""], 1 << 64),
        WorkerRequest(b"", [b""], 1, 0, 256),
        WorkerRequest(b"", [b""], 1, 0, 1, b"k" * 256),
        WorkerFinal(b"", [b""], 1, -1),
    ],
    ids=repr,
)
def test_what_does_not_fit_into_a_header_is_refused(command: Any) -> None:
    with pytest.raises(LocalViolation):
        MDP_03.encode(command)


@requirement("mdp03:flags")
@pytest.mark.parametrize("flags", [2, 3, 128, 255])
def test_reserved_flags_are_not_sent(flags: int) -> None:
    with pytest.raises(LocalViolation, match="reserved"):
        MDP_03.encode(ClientRequest(b"echo", [b""], 1, 0, flags, b""))


@requirement("mdp03:status-worker")
@pytest.mark.parametrize("status", [2, 3, 4, 5, 6, 8, 255])
def test_a_worker_does_not_send_the_statuses_of_the_broker(status: int) -> None:
    with pytest.raises(LocalViolation, match="status"):
        MDP_03.encode(WorkerFinal(b"", [b""], 1, status))


@requirement("mdp03:timeout")
@pytest.mark.parametrize(
    ("remaining_s", "on_the_wire"),
    [
        (float("inf"), 0),
        (2.5, 2500),
        (0.0004, 1),
        (1e-9, 1),
        (0.0006, 1),
        (1.0004, 1000),
        (1e9, U32_MAX),
    ],
)
def test_times_travel_as_milliseconds_that_remain(remaining_s: float, on_the_wire: int) -> None:
    assert timeout_ms(remaining_s) == on_the_wire
