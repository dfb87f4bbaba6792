"""Every command that can be encoded decodes to an equal one; others are refused."""

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
from requite.trace_context import is_valid

u8 = st.integers(0, 255)
u32 = st.integers(0, U32_MAX)
u64 = st.integers(0, (1 << 64) - 1)
names = st.binary(min_size=1, max_size=255)
keys = st.just(b"") | st.binary(max_size=255)
addresses = st.binary(max_size=255)
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
call_ids = st.binary(min_size=16, max_size=16)
users = st.text(min_size=1, max_size=63).map(str.encode)
traces = st.just(b"") | st.binary(min_size=25, max_size=25).filter(is_valid)
nothing = st.just(b"")


def build(command: Callable[..., Any], *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw commands: `fields` gives the first fields, the others have their defaults."""
    return st.tuples(*fields).map(lambda drawn: command(*drawn))


# Commands by the directions in which they may be sent, with every field that MDP 0.3 transmits.
COMMANDS_03: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = {
    ("from_client",): [
        build(ClientRequest, names, bodies, u64, u32, st.integers(0, 1), keys),
        build(
            ClientRequest, names, bodies, u64, u32, st.integers(0, 1), keys, call_ids, users, traces
        ),
        build(ClientCancel, u64),
    ],
    ("to_client",): [
        build(ClientPartial, nothing, bodies, u64, u32),
        build(ClientFinal, nothing, bodies, u64, st.integers(0, 7), u8),
    ],
    ("from_client", "to_client"): [build(ClientHeartbeat, u32)],
    ("from_worker",): [
        build(Ready, names, st.integers(1, 65535), u32, u32),
        build(WorkerPartial, nothing, bodies, u64),
        build(WorkerFinal, nothing, bodies, u64, st.sampled_from([0, 1, 7])),
        build(Progress, u64, u32),
        build(DrainNotice),
    ],
    ("to_worker",): [
        build(WorkerRequest, nothing, bodies, u64, u32, u8, keys),
        build(WorkerCancel, u64),
    ],
    ("from_worker", "to_worker"): [build(WorkerHeartbeat, u32), build(Disconnect)],
}
COMMANDS_01: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = {
    ("from_client",): [build(ClientRequest, names, bodies)],
    ("to_client",): [build(ClientFinal, names, bodies)],
    ("from_worker",): [build(Ready, names), build(WorkerFinal, addresses, bodies)],
    ("to_worker",): [build(WorkerRequest, addresses, bodies)],
    ("from_worker", "to_worker"): [build(WorkerHeartbeat), build(Disconnect)],
}
COMMANDS_02: dict[tuple[str, ...], list[st.SearchStrategy[Any]]] = COMMANDS_01 | {
    ("to_client",): [*COMMANDS_01["to_client",], build(ClientPartial, names, bodies)],
    ("from_worker",): [
        *COMMANDS_01["from_worker",],
        build(WorkerPartial, addresses, bodies),
    ],
}


def directed(
    commands: dict[tuple[str, ...], list[st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[str, Any]]:
    """Draw a direction and a command that may be sent in it."""
    return st.one_of(
        [
            st.tuples(st.sampled_from(directions), strategy)
            for directions, strategies in commands.items()
            for strategy in strategies
        ]
    )


def assert_round_trip(dialect: Dialect, direction: str, command: Any) -> None:
    decoded = decode(dialect, direction, dialect.encode(command))
    assert decoded == command
    assert type(decoded) is type(command)


@requirement("mdp03:body")
@given(directed(COMMANDS_03))
def test_commands_of_0_3_survive_the_round_trip(sent: tuple[str, Any]) -> None:
    assert_round_trip(MDP_03, *sent)


@given(directed(COMMANDS_02))
def test_commands_of_0_2_survive_the_round_trip(sent: tuple[str, Any]) -> None:
    assert_round_trip(MDP_02, *sent)


@given(directed(COMMANDS_01))
def test_commands_of_0_1_survive_the_round_trip(sent: tuple[str, Any]) -> None:
    assert_round_trip(MDP_01, *sent)


@pytest.mark.parametrize("dialect", [MDP_01, MDP_02], ids=["0.1", "0.2"])
def test_fields_that_the_standard_dialects_lack_are_dropped(dialect: Dialect) -> None:
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


def test_0_3_drops_the_service_of_replies_and_the_address_of_requests() -> None:
    final = MDP_03.encode(ClientFinal(b"echo", [b"hi"], 7, 0, 1))
    assert MDP_03.decode_to_client(final) == ClientFinal(b"", [b"hi"], 7, 0, 1)
    handed = MDP_03.encode(WorkerRequest(b"addr", [b"hi"], 9, 0, 1, b""))
    assert MDP_03.decode_to_worker(handed) == WorkerRequest(b"", [b"hi"], 9)


# --- commands and values that cannot be encoded ---------------------------------------------------
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
def test_0_1_refuses_partials(command: Any) -> None:
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
        ClientRequest(b"echo", [b""], principal=b"u" * 256),
        ClientPartial(b"", [b""], 1, -1),
        ClientFinal(b"", [b""], 1 << 64),
        ClientFinal(b"", [b""], 1, 10),
        WorkerRequest(b"", [b""], 1, 0, 1, b"k" * 256, principal=b"shop"),
        WorkerRequest(b"", [b""], 1, 0, 1, principal=b"s" * 256),
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
def test_values_that_do_not_fit_into_a_header_are_refused(command: Any) -> None:
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
def test_a_timeout_is_sent_as_the_remaining_milliseconds(
    remaining_s: float, on_the_wire: int
) -> None:
    assert timeout_ms(remaining_s) == on_the_wire
