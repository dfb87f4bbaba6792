"""The wire format of a pair: the bytes in docs/protocols/binary-star.md, and malformed messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import RemoteViolation
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView, view_from_wire, view_on_wire
from requite.protocols.binarystar.wire import (
    EPOCH_MAX,
    MESSAGE_SIZE_MAX,
    NEVER_MS,
    TEXT_SIZE_MAX,
    Ask,
    Command,
    Refused,
    Switch,
    View,
    Word,
    decode,
    encode,
)

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "binary-star.md"

HEARTBEAT = Word(
    PairRole.PRIMARY,
    State.ACTIVE,
    wants_answer=False,
    interval_ms=1000,
    epoch=3,
    instance=0x1122334455667788,
    number=42,
    heard_instance=0x99AABBCCDDEEFF00,
    heard=41,
)
VIEW = View(PairRole.BACKUP, State.PASSIVE, False, False, 3, 250, 1000, 3)
SAMPLES: list[Command] = [HEARTBEAT, Switch(3), Ask(), VIEW, Refused("a switch is under way")]

u64 = st.integers(0, (1 << 64) - 1)
u32 = st.integers(0, (1 << 32) - 1)
epochs = st.integers(0, EPOCH_MAX)
roles, states = st.sampled_from(PairRole), st.sampled_from(State)
texts = st.text(max_size=TEXT_SIZE_MAX // 4)
commands = st.one_of(
    st.builds(Word, roles, states, st.booleans(), u32, epochs, u64, u64, u64, u64),
    st.builds(Switch, epochs),
    st.builds(Ask),
    st.builds(
        View,
        roles,
        states,
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, *map(int, State)]),
        u32,
        u32,
        epochs,
        texts,
    ),
    st.builds(Refused, texts),
)


def golden() -> list[bytes]:
    """Return the example messages of the protocol's page."""
    blocks = re.findall(r"```\n((?:[0-9a-f]{2}[ \n]+)+)```", PAGE.read_text(encoding="utf-8"))
    whole = bytes.fromhex("".join(blocks))
    return [b"BSTAR" + rest for rest in whole.split(b"BSTAR")[1:]]


@pytest.mark.parametrize(("command", "frame"), list(zip(SAMPLES, golden(), strict=True)), ids=str)
def test_golden_bytes(command: Command, frame: bytes) -> None:
    assert encode(command) == [frame]
    assert decode([frame]) == command


@given(commands)
def test_round_trip(command: Command) -> None:
    (frame,) = encode(command)
    assert len(frame) <= MESSAGE_SIZE_MAX
    assert decode([frame]) == command


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_truncated_or_extended_frame_is_refused(command: Command) -> None:
    (frame,) = encode(command)
    has_text = isinstance(command, View | Refused)
    shortest = len(frame) - len(command[-1].encode()) if has_text else len(frame)  # type: ignore[union-attr]
    for size in range(shortest):
        with pytest.raises(RemoteViolation):
            decode([frame[:size]])
    with pytest.raises(RemoteViolation):
        decode([frame + bytes(TEXT_SIZE_MAX + 1)])


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for frame in (data, b"BSTAR\x01" + data):
        try:
            command = decode([frame])
        except RemoteViolation:
            continue
        assert decode(encode(command)) == command


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ([], "one frame, not 0"),
        ([b"BSTAR\x01\x03", b""], "one frame, not 2"),
        ([b"MDPC03\x01"], "must start with"),
        ([b"BSTAR"], "at least 7 bytes"),
        ([b"BSTAR\x02\x03"], "uses version 2"),
        ([b"BSTAR\x01\x09"], "unknown command 0x09"),
        ([b"BSTAR\x01\x02" + b"\xff" * 8], "is larger than the maximum"),
        ([b"BSTAR\x01\x05\xff"], "not UTF-8"),
        ([encode(HEARTBEAT)[0].replace(b"\x01\x01\x01", b"\x01\x01\x03", 1)], "unknown role 3"),
        (
            [encode(HEARTBEAT)[0].replace(b"\x01\x01\x01\x03", b"\x01\x01\x01\x08", 1)],
            "unknown state 8",
        ),
    ],
)
def test_the_error_names_what_is_wrong(message: list[bytes], why: str) -> None:
    with pytest.raises(RemoteViolation, match=re.escape(why)):
        decode(message)


def test_long_texts_are_truncated_between_characters() -> None:
    (frame,) = encode(Refused("é" * TEXT_SIZE_MAX))
    assert decode([frame]) == Refused("é" * (TEXT_SIZE_MAX // 2))
    (frame,) = encode(Refused("x" + "é" * TEXT_SIZE_MAX))
    assert decode([frame]) == Refused("x" + "é" * (TEXT_SIZE_MAX // 2 - 1))


@pytest.mark.parametrize("heard_s_ago", [None, 0.25, 1e9])
@pytest.mark.parametrize("peer_state", [None, State.ACTIVE])
def test_a_view_survives_the_round_trip(
    heard_s_ago: float | None, peer_state: State | None
) -> None:
    view = PairView(PairRole.BACKUP, State.PASSIVE, 3, peer_state, heard_s_ago, True, True, "why")
    told = view_from_wire(view_on_wire(view, 1000))
    latest = (NEVER_MS - 1) / 1000
    expected = None if heard_s_ago is None else min(heard_s_ago, latest)
    assert told.heard_s_ago == expected
    assert (told.peer_state, told.serves, told.peer_is_silent) == (peer_state, True, True)
    assert (told.role, told.state, told.epoch, told.trouble) == (view.role, view.state, 3, "why")
