"""Detection of role and dialect from a peer's first message; versions of MDP and service names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.wire.majordomo_samples import DIALECTS, SAMPLES, Sample

from requite.engine import Message
from requite.errors import ConfigurationError, RemoteViolation
from requite.protocols.majordomo import foreign
from requite.protocols.majordomo.dialects import PeerRole, by_version, check_service_name, detect

INCOMING = [
    pytest.param(
        sample, PeerRole.CLIENT if direction == "from_client" else PeerRole.WORKER, id=str(sample)
    )
    for sample in SAMPLES
    for direction in sample.directions
    if direction in ("from_client", "from_worker")
]


@requirement("mdp01:broker:one-socket", "mdp03:client-first")
@pytest.mark.parametrize(("sample", "role"), INCOMING)
def test_the_first_message_shows_role_and_dialect(sample: Sample, role: PeerRole) -> None:
    assert detect(sample.message) == (role, sample.dialect)


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b""],
        [b"", b""],
        [b"", b"", b"MDPC01"],
        [b"MDPC0"],
        [b"MDPC04\x01", b"x"],
        [b"MDPX03\x01", b"x"],
        [b"mdpc03\x01", b"x"],
        # mixtures: 0.1 without its empty frame, 0.2 and 0.3 with one (majortomo sends 0.2 this way)
        [b"MDPC01", b"echo", b"hello"],
        [b"MDPW01", b"\x01", b"echo"],
        [b"", b"MDPC02", b"\x02", b"echo", b"hello"],
        [b"", b"MDPW02", b"\x01", b"echo"],
        [b"", b"MDPC03\x04" + bytes(8)],
        # frames packed by zproto, as zeromq/majordomo sends them
        [bytes.fromhex("aaa40106") + b"MDPC02\x01\x04echo", b"hello"],
        [b"\x00" * 6],
        [b"GET / HTTP/1.1"],
    ],
    ids=repr,
)
def test_a_message_of_no_dialect_is_not_detected(message: Message) -> None:
    assert detect(message) is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        # zeromq/majordomo since 2015: a client's REQUEST, and a worker's READY
        ([bytes.fromhex("aaa40106") + b"MDPC02\x01\x04echo", b"hello"], "encoded with zproto"),
        ([bytes.fromhex("aaa40406") + b"MDPW02\x01\x04echo"], "encoded with zproto"),
        # majortomo 0.2: a client's REQUEST, and a worker's READY
        ([b"", b"MDPC02", b"\x02", b"echo", b"hello"], "as majortomo sends it"),
        ([b"", b"MDPW02", b"\x01", b"echo"], "as majortomo sends it"),
        # zeromq/majordomo, tag wire-protocol-0.2; and RFC 18 from a REQ socket
        ([b"", b"MDPC02", b"echo", b"hello"], "'MDPC02' has an empty frame before it"),
        ([b"", b"MDPC02", b"\x01", b"echo", b"hello"], "'MDPC02' has an empty frame before it"),
        ([b"", b"MDPC03\x04" + bytes(8)], "'MDPC03' has an empty frame before it"),
        # libmdp
        ([b"", b"MDPC0X", b"echo", b"hello"], "libmdp"),
        ([b"", b"MDPW0X", b"\x01", b"echo"], "libmdp"),
        # MDP 0.1 from a DEALER socket
        ([b"MDPC01", b"echo", b"hello"], "has no empty frame before it"),
        ([b"MDPW01", b"\x01", b"echo"], "has no empty frame before it"),
        ([b"MDPC04", b"\x01", b"echo", b"hello"], "it announces MDPC04"),
        ([b"", b"MDPW99", b"\x01"], "it announces MDPW99"),
        ([b"\x01"], "READY of a Pirate"),
    ],
    ids=repr,
)
def test_known_foreign_first_messages_are_described(message: Message, told: str) -> None:
    assert detect(message) is None
    reason = foreign.describe(message)
    assert reason.startswith("its first message does not match any dialect of MDP")
    assert told in reason
    assert "; " in reason  # the reason ends with advice


@pytest.mark.parametrize("message", [[], [b""], [b"", b""], [b"hello"], [b"mdpc02", b"\x01"]])
def test_an_unknown_first_message_gets_the_general_description(message: Message) -> None:
    assert foreign.describe(message) == "its first message does not match any dialect of MDP"


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_any_message_has_a_printable_description(message: Message) -> None:
    assert foreign.describe(message).isprintable()


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_detection_accepts_any_frames(message: Message) -> None:
    start = b"".join(message[: 1 if message and message[0] else 2])[:6]
    magics = {b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02", b"MDPC03", b"MDPW03"}
    assert detect(message) is None or start in magics


def test_dialects_are_found_by_version() -> None:
    assert [by_version(version) for version in ("0.1", "0.2", "0.3")] == list(DIALECTS)
    assert [dialect.version for dialect in DIALECTS] == ["0.1", "0.2", "0.3"]


@pytest.mark.parametrize("version", ["", "0.4", "1", "02", "MDPC02"])
def test_an_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"0\.1, 0\.2, 0\.3"):
        by_version(version)


def test_capabilities_of_the_dialects() -> None:
    assert [dialect.has_ids for dialect in DIALECTS] == [False, False, True]
    assert [dialect.has_partials for dialect in DIALECTS] == [False, True, True]


@requirement("mdp03:service-name")
@pytest.mark.parametrize("name", [b"e", b"echo", "größe/日本".encode(), b"a b", b"x" * 255])
def test_service_names(name: bytes) -> None:
    assert check_service_name(name).encode() == name


@requirement("mdp03:service-name")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (b"", "1 to 255 bytes, not 0"),
        (b"x" * 256, "not 256"),
        (b"\xff", "not UTF-8"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (b"a\nb", "control"),
        (b"\x00", "control"),
        (b"\x7f", "control"),
        (b"\xc2\x85", "control"),
    ],
)
def test_an_invalid_service_name_is_refused(name: bytes, complaint: str) -> None:
    with pytest.raises(RemoteViolation, match=complaint):
        check_service_name(name)
