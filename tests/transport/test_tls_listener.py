"""A listener reads changed certificates again, and keeps those that it has if they are bad."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.certificates import Certificates, Shown
from tests.support.hand_poll import Owner
from tests.transport.test_tls_stream import StreamBelow

from requite.errors import ConfigurationError
from requite.transport import tls_listener
from requite.transport.tls import TlsSettings
from requite.transport.tls_listener import CHECK_EVERY_S, TlsListener
from requite.transport.tls_session import TlsFailure


class Scene:
    """A listener whose certificate is in one file, and a client; `now` is the time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(tls_listener, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.files = Certificates(folder)
        self.path = folder / "listener.pem"
        self.show(self.files.server)
        self.listener = TlsListener(TlsSettings(certificate=self.path), list)

    def show(self, shown: Shown) -> None:
        """Replace the listener's file by this certificate and its key."""
        self.replace(Path(shown.certificate).read_bytes() + Path(shown.key).read_bytes())

    def replace(self, content: bytes) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, self.path)

    def is_accepted(self, name: str, ca: str = "") -> bool:
        """Whether a client that trusts `ca` accepts the listener's certificate for `name`."""
        client = TlsSettings(ca=ca or self.files.ca).session_to(name)
        server = self.listener.session()
        client.begin()
        try:
            while to_server := client.output():
                server.receive(to_server)
                if to_client := server.output():
                    client.receive(to_client)
        except TlsFailure:
            return False
        return client.established

    def wait(self) -> None:
        self.now += CHECK_EVERY_S


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def warnings(caplog: Any) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.WARNING]


def test_changed_files_are_used_within_a_second(scene: Scene, caplog: Any) -> None:
    assert scene.is_accepted("localhost")
    scene.show(scene.files.elsewhere)
    assert scene.is_accepted("localhost")  # it checks once a second
    scene.wait()
    assert scene.is_accepted("elsewhere.example")
    assert not scene.is_accepted("localhost")
    scene.show(scene.files.stranger)
    scene.wait()
    assert scene.is_accepted("localhost", scene.files.other_ca)
    assert not warnings(caplog)


@pytest.mark.parametrize("content", [b"", b"not a certificate"])
def test_bad_files_change_nothing_and_are_named(scene: Scene, content: bytes, caplog: Any) -> None:
    scene.replace(content)
    for _ in range(3):
        scene.wait()
        assert scene.is_accepted("localhost")
    assert warnings(caplog) == [
        f"TLS: cannot use the certificate '{scene.path}': it contains no certificate in PEM format;"
        " the certificates from before remain in use"
    ]
    scene.show(scene.files.elsewhere)
    scene.wait()
    assert scene.is_accepted("elsewhere.example")


def test_a_certificate_that_arrives_before_its_key(scene: Scene, caplog: Any) -> None:
    new, old = scene.files.elsewhere, scene.files.server
    scene.replace(Path(new.certificate).read_bytes() + Path(old.key).read_bytes())
    scene.wait()
    assert scene.is_accepted("localhost")
    assert "it does not belong to the certificate" in warnings(caplog)[0]
    scene.show(new)
    scene.wait()
    assert scene.is_accepted("elsewhere.example")


def test_a_missing_file_is_reported_once(scene: Scene, caplog: Any) -> None:
    scene.path.unlink()
    for _ in range(3):
        scene.wait()
        assert scene.is_accepted("localhost")
    assert len(warnings(caplog)) == 1
    assert f"'{scene.path}': no such file" in warnings(caplog)[0]
    scene.show(scene.files.server)
    scene.wait()
    assert scene.is_accepted("localhost")
    scene.path.unlink()  # a new problem, with the same words
    scene.wait()
    assert scene.is_accepted("localhost")
    assert len(warnings(caplog)) == 2


def test_bad_files_at_the_start_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        TlsListener(TlsSettings(certificate=tmp_path / "missing.pem"), list)
    with pytest.raises(ConfigurationError, match="requires a certificate"):
        TlsListener(TlsSettings(), list)


# --- incomplete handshakes ------------------------------------------------------------------------
class Accepted:
    """A stream of the listener, its owner, and the session of the peer that dialled."""

    def __init__(self, scene: Scene) -> None:
        self.peer = scene.files.to_dial.session_to("localhost")
        self.peer.begin()
        self.below = StreamBelow()
        self.owner = Owner()
        self.stream = scene.listener.stream(self.below)
        self.stream.start(self.owner, "link")

    def say_hello(self) -> None:
        self.stream.received(None, self.peer.output())

    def finish(self) -> None:
        self.peer.receive(self.below.output)
        self.stream.received(None, self.peer.output())

    @property
    def is_dropped(self) -> bool:
        return "close" in self.below.calls


def test_the_oldest_of_too_many_handshakes_is_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "HANDSHAKES_MAX", 3)
    silent = [Accepted(scene) for _ in range(5)]
    done, ended, *others = crowd = [Accepted(scene) for _ in range(5)]
    for each in crowd[:3]:
        each.say_hello()
    done.finish()
    ended.stream.closed(None, "")
    for each in crowd[3:]:
        each.say_hello()
    assert not any(each.is_dropped for each in crowd)  # three are incomplete
    last = Accepted(scene)
    last.say_hello()
    assert [each.is_dropped for each in (*others, last)] == [True, False, False, False]
    others[0].stream.closed(None, "")
    assert others[0].owner.reason == "more than 3 TLS handshakes are incomplete"
    others[1].finish()
    assert others[1].stream.peer_credential is None
    assert not any(each.is_dropped for each in (*silent, done))
