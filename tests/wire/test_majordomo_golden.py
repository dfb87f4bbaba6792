"""Majordomo's frames, byte by byte as in the specifications."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.spec.requirement import requirement
from tests.wire.majordomo_samples import (
    DIALECTS,
    EXAMPLES_03,
    MDP_03,
    SAMPLES,
    Sample,
    decode,
    headers_on_page,
)

from requite.chronicle import NO_CALL
from requite.protocols.majordomo.wire import (
    ClientRequest,
    Dialect,
    FromClient,
    FromWorker,
    ToClient,
    ToWorker,
)

COMMANDS = {
    "from_client": set(get_args(FromClient)),
    "to_client": set(get_args(ToClient)),
    "from_worker": set(get_args(FromWorker)),
    "to_worker": set(get_args(ToWorker)),
}
# Commands that the standard dialects lack.
LACKING = {
    "0.1": {"ClientCancel", "ClientHeartbeat", "Progress", "DrainNotice", "WorkerCancel"}
    | {"ClientPartial", "WorkerPartial"},
    "0.2": {"ClientCancel", "ClientHeartbeat", "Progress", "DrainNotice", "WorkerCancel"},
    "0.3": set(),
}


def test_the_samples_and_the_examples_on_the_page_match() -> None:
    assert headers_on_page().keys() == EXAMPLES_03.keys()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.version)
@pytest.mark.parametrize("direction", COMMANDS)
def test_every_command_has_a_sample(dialect: Dialect, direction: str) -> None:
    sampled = {
        type(sample.command).__name__
        for sample in SAMPLES
        if sample.dialect is dialect and direction in sample.directions
    }
    commands = {command.__name__ for command in COMMANDS[direction]}
    assert sampled == commands - LACKING[dialect.version]


@requirement("mdp01:frames:client", "mdp01:client:empty-frame", "mdp01:frames:worker")
@requirement("mdp02:frames:client", "mdp02:frames:worker")
@requirement("mdp01:frames:address", "mdp01:frames:delimiter")
@requirement("mdp02:frames:address", "mdp02:frames:delimiter")
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_command_is_encoded_as_specified(sample: Sample) -> None:
    assert sample.dialect.encode(sample.command) == sample.message


@requirement("mdp01:frames:client", "mdp01:frames:worker")
@requirement("mdp02:frames:client", "mdp02:frames:worker")
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_frames_are_decoded_as_specified(sample: Sample) -> None:
    for direction in sample.directions:
        decoded = decode(sample.dialect, direction, sample.message)
        assert decoded == sample.command
        assert type(decoded) is type(sample.command)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_body_frames_are_never_copied(sample: Sample) -> None:
    body = getattr(sample.command, "body", [])
    for direction in sample.directions:
        decoded = decode(sample.dialect, direction, sample.message)
        again = sample.dialect.encode(decoded)
        for n in range(1, len(body) + 1):
            assert decoded.body[-n] is sample.message[-n]
            assert again[-n] is sample.message[-n]


@requirement("mdp03:flags")
def test_reserved_flags_are_ignored_when_received() -> None:
    header = headers_on_page()["REQUEST to echo, 2.5 s"]
    at = header.index(b"\x00\x00\x09\xc4") + 4
    for flags in range(256):
        received = [header[:at] + bytes([flags]) + header[at + 1 :], b"hello"]
        assert decode(MDP_03, "from_client", received).flags == flags & 1


@requirement("mdp03:client-first")
def test_a_request_may_be_the_first_message() -> None:
    request = ClientRequest(b"echo", [b"hello"], 1, 0, 0, b"", NO_CALL)
    assert MDP_03.decode_from_client(MDP_03.encode(request)) == request
