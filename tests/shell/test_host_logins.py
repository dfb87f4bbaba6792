"""The host: logins from an address wait after failed ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.shell.fakes import FakeStream, HostBench, LineFraming, warnings_of

from requite.engine import PeerJoined
from requite.framing import CredentialsRefused, Login
from requite.principal import Credential
from requite.shell.host import Link


class Password(LineFraming):
    """The first line of a peer must be its name and `right`."""

    login: Login | None = None  # type: ignore[assignment]

    def receive(self, chunk: bytes) -> list[list[bytes]]:
        self._buffer += chunk
        if self.login is None and not self.ready and b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            user, _, password = line.decode().rpartition(" ")
            self.login = Login(user, password, _check)
        if self.login is not None:
            if not self.login.is_decided:
                return []
            login, self.login = self.login, None
            if login.proof is None:
                raise CredentialsRefused("the credentials were refused")
            self.ready = True
        return super().receive(b"") if self.ready else []


def _check(user: str, password: str) -> Credential | None:
    return Credential("plain", (user,)) if password == "right" else None


def dial(bench: HostBench, address: str, port: int = 1) -> tuple[Link, FakeStream]:
    stream = FakeStream(f"tcp://{address}:{port}")
    return bench.host.opened(stream, accepted=True, framing=Password()), stream


def guess(bench: HostBench, address: str = "10.0.0.1", port: int = 1) -> Link:
    link, _ = dial(bench, address, port)
    bench.host.received(link, b"ann wrong\n")
    return link


def joined(bench: HostBench) -> list[Link]:
    return [each.peer for each in bench.engine.inputs if isinstance(each, PeerJoined)]


def test_guesses_from_one_address_are_slow() -> None:
    """A guesser that opens a connection as soon as the last one has ended."""
    bench = HostBench()
    guesses = 0
    while bench.now < 160.0:
        link = guess(bench, port=guesses)
        while not link.ended and bench.now < 160.0:
            bench.tick(0.05)
        guesses += link.ended
    assert 10 < guesses < 20


@pytest.mark.parametrize("form", ["127.0.0.{}", "[2001:db8::{}]"])
def test_guesses_from_the_addresses_of_one_machine_are_slow(form: str) -> None:
    bench = HostBench()
    links = [guess(bench, form.format(number)) for number in range(1, 200)]
    bench.tick(1.0)
    checked = [count for count, _ in bench.host._admission._logins._failures.values()]
    assert sum(checked) <= 17
    assert sum(link.ended for link in links) >= len(links) - 16, "too many for the address"
    assert joined(bench) == []


def test_guesses_over_many_connections_are_slow() -> None:
    """Connections that were opened before the first failure wait, too."""
    bench = HostBench()
    links = [dial(bench, "10.0.0.1", port)[0] for port in range(100)]
    for link in links:
        bench.host.received(link, b"greeting ")
    for _ in range(100):
        for link in links:
            bench.host.received(link, b"ann wrong\n")
        bench.tick(0.1)
        links = [link for link in links if not link.ended]
        links += [dial(bench, "10.0.0.1", 0)[0] for _ in range(100 - len(links))]
    checked, _ = bench.host._admission._logins._failures["tcp://10.0.0.1"]
    assert 1 + 16 <= checked <= 1 + 5 * 16, "16 connections wait at a time"


def test_the_user_of_a_host_learns_who_was_refused() -> None:
    refused: list[tuple[str, CredentialsRefused]] = []
    bench = HostBench(login_refused=lambda peer, reason: refused.append((peer, reason)))
    guess(bench, port=4711)
    assert [(peer, str(refusal)) for peer, refusal in refused] == [
        ("tcp://10.0.0.1:4711", "the credentials were refused")
    ]


def test_a_right_password_waits_once_after_failures_at_its_address() -> None:
    bench = HostBench()
    for port in range(2):
        guess(bench, port=port)
        bench.tick(0.1)
    link, stream = dial(bench, "10.0.0.1")
    bench.host.received(link, b"bob ")
    bench.host.received(link, b"right\n")
    assert stream.calls[-1] == "pause"
    assert not joined(bench)
    bench.tick(0.2)
    assert joined(bench) == [link]
    assert stream.calls[-1] == "resume"


def test_other_addresses_do_not_wait() -> None:
    bench = HostBench()
    guess(bench)
    link, _ = dial(bench, "10.0.0.2")
    bench.host.received(link, b"bob right\n")
    assert joined(bench) == [link]


def test_failures_are_forgotten_after_minutes() -> None:
    bench = HostBench()
    guess(bench)
    bench.tick(301.0)
    link, _ = dial(bench, "10.0.0.1")
    bench.host.received(link, b"bob right\n")
    assert joined(bench) == [link]


def test_the_table_of_addresses_is_bounded() -> None:
    bench = HostBench()
    for n in range(3000):
        guess(bench, f"10.0.{n // 256}.{n % 256}")
    assert len(bench.host._admission._logins._failures) == 1024


def test_failures_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = HostBench()
    for port in range(8):
        guess(bench, port=port)
        bench.tick(6.0)
    lines = warnings_of(caplog)
    assert lines[0] == (
        "login refused: tcp://10.0.0.1:0: the credentials were refused (one failed login from"
        " tcp://10.0.0.1; passwords from there wait 0.1 s)"
    )
    assert "8 failed logins from tcp://10.0.0.1; passwords from there wait 5 s" in lines[-1]


def test_a_link_that_ends_while_it_waits_leaves_no_state() -> None:
    bench = HostBench()
    guess(bench)
    link, _ = dial(bench, "10.0.0.1")
    bench.host.received(link, b"bob right\n")
    assert len(bench.host._admission)
    bench.host.closed(link, "reset")
    bench.tick(1.0)
    assert not joined(bench)
    assert bench.host._admission.next_at() is None
    assert not len(bench.host._admission)


def test_peers_that_prove_themselves_by_other_means_never_wait() -> None:
    bench = HostBench()
    for port in range(50):
        guess(bench, port=port)
    stream = FakeStream("tcp://10.0.0.1:99")
    link = bench.host.opened(stream, accepted=True, framing=LineFraming())
    bench.host.received(link, b"ann\n")
    assert joined(bench) == [link]


class Slow:
    """A check of passwords that takes its time, as on a thread."""

    def __init__(self) -> None:
        self.begun: list[tuple[Login, Callable[[], object]]] = []
        self.withdrawn: list[Login] = []

    def verify(self, login: Login, decided: Callable[[], object]) -> Callable[[], object]:
        self.begun.append((login, decided))
        return lambda: self.withdrawn.append(login)

    def end(self, number: int) -> None:
        login, decided = self.begun[number]
        login.check_now()
        decided()


def test_other_links_are_served_while_a_password_is_checked() -> None:
    slow = Slow()
    bench = HostBench(verify=slow.verify)
    link, stream = dial(bench, "10.0.0.1")
    bench.host.received(link, b"bob right\none\n")
    assert stream.calls[-1] == "pause"
    other, _ = bench.open("ann")
    assert joined(bench) == [other]
    bench.host.received(link, b"two\n")  # a stream may deliver one more chunk
    slow.end(0)
    assert joined(bench) == [other, link]
    assert bench.engine.messages() == [[[b"one"], [b"two"]]]
    assert stream.calls[-1] == "resume"
    assert bench.host.received(link, b"three\n") is None
    assert bench.engine.messages()[1:] == [[[b"three"]]]


def test_a_wrong_password_ends_its_link_when_the_check_says_so() -> None:
    slow = Slow()
    bench = HostBench(verify=slow.verify)
    link = guess(bench)
    assert not link.ended
    slow.end(0)
    assert link.ended
    assert joined(bench) == []
    assert not len(bench.host._admission)


def test_the_check_for_a_link_that_has_ended_is_withdrawn() -> None:
    slow = Slow()
    bench = HostBench(verify=slow.verify)
    link = guess(bench)
    bench.host.closed(link, "reset")
    assert slow.withdrawn == [slow.begun[0][0]]
    assert not len(bench.host._admission)


def test_one_password_of_an_address_is_checked_at_a_time() -> None:
    """A burst of wrong ones, before the first has failed, is as slow as one after another."""
    slow = Slow()
    bench = HostBench(verify=slow.verify)
    links = [guess(bench, port=port) for port in range(40)]
    other, _ = dial(bench, "10.0.0.2")
    bench.host.received(other, b"bob right\n")
    assert [login.user for login, _ in slow.begun] == ["ann", "bob"]
    slow.end(0)
    slow.end(1)
    assert joined(bench) == [other]
    bench.tick(0.2)
    assert sum(link.ended for link in links) == 1, "the others do not gain by coming again"
    bench.tick(1.0)
    assert sum(link.ended for link in links) == 40 - 16, "too many for the address"
    for number in range(2, 18):
        while len(slow.begun) <= number:
            bench.tick(0.1)
        assert len(slow.begun) == number + 1
        slow.end(number)
    bench.tick(1.0)
    assert all(link.ended for link in links)
    assert not len(bench.host._admission)


def test_a_burst_of_right_passwords_from_one_address_joins() -> None:
    slow = Slow()
    bench = HostBench(verify=slow.verify)
    links = []
    for port in range(40):
        link, _ = dial(bench, "10.0.0.1", port)
        bench.host.received(link, b"bob right\n")
        links.append(link)
    for number in range(40):
        while number >= len(slow.begun):
            bench.tick(0.1)
        slow.end(number)
    assert sorted(map(id, joined(bench))) == sorted(map(id, links))


class Keys(LineFraming):
    """Refuses every peer at once, as a handshake with keys does."""

    def receive(self, chunk: bytes) -> list[list[bytes]]:
        if not self.ready:
            raise CredentialsRefused("no user has this key")
        return super().receive(chunk)


def test_after_many_failures_links_are_closed_later() -> None:
    """Who opens one connection after the other costs little; a peer with a good key does not
    wait."""
    bench = HostBench()
    links = []
    for port in range(20):
        stream = FakeStream(f"tcp://10.0.0.1:{port}")
        link = bench.host.opened(stream, accepted=True, framing=Keys())
        bench.host.received(link, b"key\n")
        links.append(link)
    assert [link.ended for link in links] == [True] * 16 + [False] * 4
    assert stream.calls[-1] == "pause"
    good, _ = bench.open("good")
    assert joined(bench) == [good]
    bench.tick(1.0)
    assert all(link.ended for link in links)
    assert stream.calls[-1] == "close"


def test_the_number_of_links_that_are_closed_later_is_limited() -> None:
    bench = HostBench()
    for port in range(3000):
        link, _ = dial(bench, "10.0.0.1", port)
        bench.host.received(link, b"ann wrong\n")
    assert len(bench.host._admission._held) <= 1025
