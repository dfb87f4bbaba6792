"""Any list of frames decodes to a command or raises a `RemoteViolation` that names the defect
(I13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.wire.majordomo_samples import (
    DIALECTS,
    DIRECTIONS,
    MDP_01,
    MDP_02,
    MDP_03,
    SAMPLES,
    Sample,
    decode,
)

from requite.engine import Message
from requite.errors import RemoteViolation
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientRequest,
    Dialect,
    Ready,
    WorkerFinal,
    WorkerRequest,
)

WITH_BODY = {"ClientRequest", "ClientPartial", "ClientFinal"} | {
    "WorkerRequest",
    "WorkerPartial",
    "WorkerFinal",
}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.version)
every_direction = pytest.mark.parametrize("direction", DIRECTIONS)
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)


def refused(dialect: Dialect, direction: str, message: Message) -> str:
    with pytest.raises(RemoteViolation) as caught:
        decode(dialect, direction, message)
    return str(caught.value)


def test_the_table_of_commands_with_a_body_is_complete() -> None:
    assert {type(s.command).__name__ for s in SAMPLES if hasattr(s.command, "body")} == WITH_BODY


@every_dialect
@every_direction
@pytest.mark.parametrize(
    "message",
    [
        [],
        [b""],
        [b"", b""],
        [b"\x00"],
        [b"MDP"],
        [b"MDPC02"],
        [b"MDPC03"],
        [b"MDPW03"],
        [b"MDPC03\x00"],
        [b"MDPW03\xff", b"x"],
        [b"mdpc02", b"\x01", b"echo", b"hello"],
        [b"MDPX02", b"\x01", b"echo", b"hello"],
        [b"MDPC02", b"\x01\x01", b"echo", b"hello"],
        [b"MDPC02", b"", b"echo", b"hello"],
        [b"", b"MDPX01", b"echo", b"hello"],
    ],
    ids=repr,
)
def test_frames_that_are_no_command_are_refused(
    dialect: Dialect, direction: str, message: Message
) -> None:
    assert refused(dialect, direction, message)


@requirement("mdp03:header")
@every_sample
@every_direction
def test_a_command_in_the_wrong_direction_is_refused(sample: Sample, direction: str) -> None:
    if direction in sample.directions:
        assert decode(sample.dialect, direction, sample.message) == sample.command
    elif sample.dialect is MDP_01 and {direction, *sample.directions} == {
        "from_client",
        "to_client",
    }:
        # 7/MDP gives REQUEST and REPLY the same frames; only the direction tells them apart.
        taken_for = decode(sample.dialect, direction, sample.message)
        assert taken_for.service == sample.command.service
        assert taken_for.body == sample.command.body
    else:
        assert refused(sample.dialect, direction, sample.message)


@every_sample
@every_dialect
@every_direction
def test_a_command_of_another_dialect_is_refused(
    sample: Sample, dialect: Dialect, direction: str
) -> None:
    if sample.dialect is not dialect:
        assert refused(dialect, direction, sample.message)


@requirement("mdp01:frames:client", "mdp01:frames:worker")
@requirement("mdp02:frames:client", "mdp02:frames:worker", "mdp03:body")
@every_sample
def test_a_message_without_its_last_frames_is_refused(sample: Sample) -> None:
    frames = len(sample.message) - max(0, len(getattr(sample.command, "body", [])) - 1)
    for direction in sample.directions:
        for n in range(frames):
            assert refused(sample.dialect, direction, sample.message[:n])


@requirement("mdp01:frames:worker", "mdp02:frames:worker", "mdp03:body")
@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if type(s.command).__name__ not in WITH_BODY], ids=str
)
@pytest.mark.parametrize("extra", [b"", b"extra"])
def test_extra_frames_after_a_command_without_a_body_are_refused(
    sample: Sample, extra: bytes
) -> None:
    for direction in sample.directions:
        assert refused(sample.dialect, direction, [*sample.message, extra])


@requirement("mdp01:frames:address", "mdp01:frames:delimiter")
@requirement("mdp02:frames:address", "mdp02:frames:delimiter")
@pytest.mark.parametrize("dialect", [MDP_01, MDP_02], ids=["0.1", "0.2"])
def test_exactly_one_address_and_an_empty_frame_are_required(dialect: Dialect) -> None:
    for direction, message in [
        ("to_worker", dialect.encode(WorkerRequest(b"addr", [b"hello"], 0, 0, 1, b""))),
        ("from_worker", dialect.encode(WorkerFinal(b"addr", [b"hello"], 0, 0))),
    ]:
        *head, address, empty, body = message
        assert "not empty" in refused(dialect, direction, [*head, address, b"addr", empty, body])
        assert "not empty" in refused(dialect, direction, [*head, address, body, body])
        assert refused(dialect, direction, [*head, empty, body])
        assert refused(dialect, direction, [*head, address, empty])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.version)
def test_an_empty_body_frame_is_legal(dialect: Dialect) -> None:
    message = dialect.encode(ClientRequest(b"echo", [b""], 1, 0, 0, b""))
    assert decode(dialect, "from_client", message).body == [b""]


# --- the packed headers of 0.3 --------------------------------------------------------------------
PACKED = pytest.mark.parametrize("sample", [s for s in SAMPLES if s.dialect is MDP_03], ids=str)


@requirement("mdp03:header")
@PACKED
def test_a_truncated_header_is_refused(sample: Sample) -> None:
    header, *body = sample.message
    flexible = len(getattr(sample.command, "key", b""))  # a truncated key is still a valid key
    if type(sample.command).__name__ == "Ready":
        flexible = len(sample.command.service)
    flexible += len(getattr(sample.command, "reason", b""))
    for direction in sample.directions:
        for size in range(len(header) - flexible):
            assert refused(MDP_03, direction, [header[:size], *body])


@requirement("mdp03:header")
@PACKED
def test_a_header_longer_than_allowed_is_refused(sample: Sample) -> None:
    header, *body = sample.message
    name = type(sample.command).__name__
    room = {
        "ClientRequest": 255 - len(getattr(sample.command, "key", b"")),
        "WorkerRequest": 255 - len(getattr(sample.command, "key", b"")),
        "Ready": 255 - 4,
    }.get(name, 0)
    for direction in sample.directions:
        if name == "Disconnect" and direction == "to_worker":
            room = 1000 - len(sample.command.reason)
        if getattr(sample.command, "principal", b""):
            room = 255 - len(sample.command.key)
        if room:
            assert decode(MDP_03, direction, [header + bytes(room), *body])
        for surplus in (room + 1, room + 2, room + 1000):
            assert refused(MDP_03, direction, [header + bytes(surplus), *body])


@requirement("mdp03:status-worker")
@pytest.mark.parametrize("status", range(256))
def test_a_worker_may_send_three_statuses(status: int) -> None:
    header = MDP_03.encode(WorkerFinal(b"", [b"x"], 9, 0))[0]
    message = [header[:-1] + bytes([status]), b"x"]
    if status in (0, 1, 7):
        assert decode(MDP_03, "from_worker", message).status == status
    else:
        assert f"status {status}" in refused(MDP_03, "from_worker", message)


@requirement("mdp03:status-known")
@pytest.mark.parametrize("status", range(256))
def test_a_broker_may_send_all_defined_statuses(status: int) -> None:
    header = MDP_03.encode(ClientFinal(b"", [b"x"], 9, 0, 1))[0]
    message = [header[:-2] + bytes([status]) + header[-1:], b"x"]
    if status <= 9:
        assert decode(MDP_03, "to_client", message).status == status
    else:
        assert f"status {status}" in refused(MDP_03, "to_client", message)


@requirement("mdp03:worker-principal")
@pytest.mark.parametrize(
    ("size", "tail"), [(5, b"shop"), (255, bytes(254)), (0, bytes(256)), (4, b"shop" + bytes(256))]
)
def test_a_principal_ends_within_its_header(size: int, tail: bytes) -> None:
    message = [b"MDPW03\x0a" + bytes(13) + bytes([size]) + bytes(16) + tail, b"x"]
    assert "REQUEST_OF" in refused(MDP_03, "to_worker", message)


@requirement("mdp03:header")
@pytest.mark.parametrize(
    ("sizes", "tail"),
    [
        ((4, 0), b"echo"),
        ((4, 6), b"echoalice"),
        ((5, 5), b"echoalice"),
        ((255, 5), b"echoalice"),
        ((4, 5), b"echoalice" + bytes(256)),
        ((4, 2), b"echo\xff\xfe"),
    ],
)
def test_the_principal_of_a_request_for_a_user_ends_within_its_header(
    sizes: tuple[int, int], tail: bytes
) -> None:
    fixed = b"MDPC03\x07" + bytes(13) + bytes(sizes) + bytes(16 + 25)
    assert "REQUEST" in refused(MDP_03, "from_client", [fixed + tail, b"x"])


@requirement("mdp03:worker-ready")
def test_a_capacity_of_0_is_refused() -> None:
    header = MDP_03.encode(Ready(b"echo", 1, 0, 0))[0]
    assert "capacity" in refused(MDP_03, "from_worker", [header[:7] + b"\0\0" + header[9:]])


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ([], "no frames"),
        ([b"MDPC03"], "ends before the command byte"),
        ([b"MDPC03\x02" + bytes(12), b"x"], "no command 0x02"),
        ([b"MDPC03\x04" + bytes(7)], "CANCEL: the header has 14 of 15"),
        ([b"MDPC03\x04" + bytes(9)], "CANCEL: the header has 16 bytes; the maximum is 15"),
        ([b"MDPC03\x04" + bytes(8), b"x"], "CANCEL: there are 1 body frames"),
        ([b"MDPC03\x01" + bytes(30)], "REQUEST: there are 0 body frames"),
        (
            [b"MDPC03\x01" + bytes(13) + b"\x05" + bytes(16) + b"echo", b"x"],
            "after 4 of 5 bytes of service name",
        ),
        ([b"MDPC03\x01" + bytes(30 + 256), b"x"], "the key has 256 bytes"),
    ],
    ids=str,
)
def test_the_error_names_what_is_wrong(message: Message, complaint: str) -> None:
    assert complaint in refused(MDP_03, "from_client", message)


# --- arbitrary frames -----------------------------------------------------------------------------
magics = st.sampled_from(
    [magic + digits for magic in (b"MDPC", b"MDPW") for digits in (b"01", b"02", b"03")]
)
commands = st.binary(min_size=1, max_size=1)
headers_03 = st.builds(
    lambda magic, command, rest: magic + command + rest, magics, commands, st.binary(max_size=300)
)
frames = st.just(b"") | magics | commands | headers_03 | st.binary(max_size=40)
messages = st.lists(frames, max_size=7)


def decoded_or_refused(dialect: Dialect, direction: str, message: Message) -> None:
    """Decode a message; if it is accepted, check that re-encoding gives an equal command."""
    before = list(message)
    complaint = "not refused"
    try:
        command = decode(dialect, direction, message)
    except RemoteViolation as violation:
        complaint = str(violation)
    else:
        assert decode(dialect, direction, dialect.encode(command)) == command
    assert complaint
    assert message == before


@given(messages)
def test_any_frames_decode_or_are_refused(message: Message) -> None:
    for dialect in DIALECTS:
        for direction in DIRECTIONS:
            decoded_or_refused(dialect, direction, message)


@given(st.sampled_from(SAMPLES), st.data())
def test_any_damaged_message_decodes_or_is_refused(sample: Sample, data: st.DataObject) -> None:
    message = list(sample.message)
    at = data.draw(st.integers(0, len(message) - 1))
    frame = bytearray(message[at] or b"\0")
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    message[at] = bytes(frame)
    for direction in DIRECTIONS:
        decoded_or_refused(sample.dialect, direction, message)
