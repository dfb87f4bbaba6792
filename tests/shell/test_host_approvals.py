"""The host: a link joins only when the user's hook admits it, after the access file has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.shell.fakes import FakeStream, HostBench, LineFraming, echo, warnings_of

from requite.access.authentication import (
    Answer,
    Authentication,
    AuthenticationUnavailable,
)
from requite.engine import PeerJoined, Received
from requite.framing.base import CredentialsRefused
from requite.principal import INSIDE, Credential, Principal, Quota
from requite.shell.link import LinkLimits

SHOP = Principal("shop", None, Quota(connections=2))
KEY = Credential("curve", ("key",))


class Polite(LineFraming):
    """A framing that greets a peer only when it may join, or tells it that it may not."""

    def _line(self, line: bytes) -> list[bytes] | None:
        if not self.ready:
            self._output = b"welcome\n"
        return super()._line(line)

    def refuse(self, _status: str, /) -> None:
        self._output = b"refused\n"
        self._said_farewell = True


class Desk:
    """The user's side: the questions, and the answers to give."""

    def __init__(self) -> None:
        self.asked: list[Authentication] = []
        self.answers: list[Answer] = []
        self.withdrawn: list[int] = []

    def ask(self, peer: Authentication, answer: Answer) -> Callable[[], object]:
        number = len(self.asked)
        self.asked.append(peer)
        self.answers.append(answer)
        return lambda: self.withdrawn.append(number)


@pytest.fixture
def desk() -> Desk:
    return Desk()


class Bench(HostBench):
    """A host whose peers all are of `owner`, which a test may change."""

    def __init__(self, desk: Desk, limits: LinkLimits | None = None) -> None:
        self.owner: Principal | CredentialsRefused = SHOP
        super().__init__(limits, ask=desk.ask, identify=lambda *_peer: self._owner())
        self.engine.script = echo

    def _owner(self) -> Principal:
        if isinstance(self.owner, CredentialsRefused):
            raise self.owner
        return self.owner

    def connect(self, sent: bytes = b"ann\n") -> tuple[FakeStream, object]:
        stream = FakeStream("tcp://192.0.2.7:9")
        framing = Polite()
        framing.peer_credential = KEY
        link = self.host.opened(stream, accepted=True, framing=framing)
        self.host.received(link, sent)
        return stream, link


def test_the_hook_is_asked_about_the_peer_before_it_joins(desk: Desk) -> None:
    bench = Bench(desk)
    stream, link = bench.connect()
    assert desk.asked == [Authentication("shop", KEY, "tcp://192.0.2.7:9", b"ann")]
    assert desk.asked[0].mechanism == "CURVE"
    assert bench.engine.inputs == []
    bench.host.flush()
    assert stream.calls == ["start", b"hello\n", "pause"], "the peer knows nothing yet"
    desk.answers[0](None)
    bench.host.flush()
    assert [type(each) for each in bench.engine.inputs] == [PeerJoined]
    assert bench.engine.inputs[0].peer is link
    assert bench.engine.inputs[0].principal is SHOP
    assert stream.calls[3:] == ["resume", b"welcome\n"]


def test_what_a_peer_sends_meanwhile_waits_and_keeps_its_order(desk: Desk) -> None:
    bench = Bench(desk)
    stream, link = bench.connect(b"ann\none\ntwo\nth")
    bench.host.received(link, b"ree\nfour\n")  # a stream may deliver one more chunk
    assert bench.engine.inputs == []
    desk.answers[0](None)
    bench.host.flush()
    assert bench.engine.messages() == [[[b"one"], [b"two"]], [[b"three"], [b"four"]]]
    assert stream.written == b"hello\nwelcome\none\ntwo\nthree\nfour\n"


def test_a_refused_peer_is_told_so_and_reaches_no_engine(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(desk)
    stream, link = bench.connect(b"ann\none\n")
    desk.answers[0](CredentialsRefused("not today"))
    assert stream.calls[-2:] == [b"refused\n", "close"]
    bench.host.received(link, b"two\n")
    bench.host.closed(link, "")
    assert bench.engine.inputs == []
    assert warnings_of(caplog) == ["connection refused: tcp://192.0.2.7:9: not today"]
    assert desk.withdrawn == []


def test_a_peer_is_disconnected_without_a_word_when_nobody_can_say(desk: Desk) -> None:
    """It would not try again after a refusal."""
    bench = Bench(desk)
    stream, _link = bench.connect()
    desk.answers[0](AuthenticationUnavailable("the directory is down"))
    assert stream.calls[-1] == "abort"
    assert stream.written == b"hello\n"
    assert bench.engine.inputs == []


def test_the_question_about_a_peer_that_hangs_up_is_withdrawn(desk: Desk) -> None:
    bench = Bench(desk)
    _, link = bench.connect()
    bench.host.closed(link, "")
    assert desk.withdrawn == [0]
    assert bench.engine.inputs == []
    assert not bench.host.links


def test_the_time_limit_of_the_handshake_counts_on(desk: Desk) -> None:
    bench = Bench(desk, LinkLimits(handshake_timeout_s=30))
    stream, _ = bench.connect()
    bench.tick(31)
    assert stream.calls[-1] == "abort"
    assert desk.withdrawn == [0]


def test_several_peers_wait_at_once_and_count_against_their_quota(desk: Desk) -> None:
    bench = Bench(desk)
    bench.connect()
    bench.connect()
    third, _ = bench.connect()
    assert len(desk.asked) == 2, "the quota comes before the question"
    assert third.written == b"hello\nrefused\n"
    desk.answers[1](CredentialsRefused("no"))
    fourth, _ = bench.connect()
    assert len(desk.asked) == 3
    assert fourth.calls[-1] == "pause"


def test_a_user_that_is_removed_meanwhile_is_refused(desk: Desk) -> None:
    bench = Bench(desk)
    stream, _ = bench.connect()
    bench.owner = CredentialsRefused("no such user")
    bench.host.rights_changed()
    assert desk.withdrawn == [0]
    assert stream.calls[-2:] == [b"refused\n", "close"]
    assert not any(isinstance(each, PeerJoined | Received) for each in bench.engine.inputs)


def test_nobody_is_asked_about_parts_of_the_same_process_and_dialled_links(desk: Desk) -> None:
    bench = Bench(desk)
    bench.owner = INSIDE
    bench.connect()
    bench.open(accepted=False)
    assert desk.asked == []
    assert [type(each) for each in bench.engine.inputs] == [PeerJoined] * 2


def test_a_link_that_is_closed_by_this_side_gets_no_answer(desk: Desk) -> None:
    bench = Bench(desk)
    stream, _ = bench.connect()
    bench.host.shut()
    assert desk.withdrawn == [0]
    assert b"welcome" not in stream.written
