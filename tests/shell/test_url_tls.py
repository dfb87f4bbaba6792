"""TLS in URLs of all protocols and in addresses to listen at; passwords only where nobody reads."""

from __future__ import annotations

from ssl import TLSVersion
from typing import Any

import pytest
from tests.support.certificates import Certificates

import requite
from requite.errors import ConfigurationError
from requite.pair.ends import listen_at, stay_connected_to
from requite.queue import Queue
from requite.speaks.endpoints import bound_at
from requite.speaks.registry import parse_url
from requite.speaks.tls import check_passwords_are_private, read_place
from requite.transport.address import (
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
    is_private,
)
from requite.transport.tls import TlsSettings

MINE = "ca=ca.pem&certificate=c.pem"
MUTUAL = TlsSettings("ca.pem", "c.pem", verify_client=True)


# --- URLs -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["mdp+tls", "flp+tls", "pirate+tls", "sp+tls"])
def test_settings_to_dial(scheme: str) -> None:
    url = parse_url(f"{scheme}://a:1,b:2?{MINE}&server_name=x")
    assert url.addresses == (TlsAddress("a", 1), TlsAddress("b", 2))
    assert url.tls == TlsSettings("ca.pem", "c.pem", server_name="x")
    assert url.tls.minimum_version is TLSVersion.TLSv1_3


@pytest.mark.parametrize("scheme", ["flp+tls", "pirate+tls", "sp+tls"])
def test_settings_to_listen(scheme: str) -> None:
    assert parse_url(f"{scheme}://a:0?{MINE}", listening=True).tls == MUTUAL
    assert bound_at([TlsAddress("a", 7)], protocol=scheme.partition("+")[0]) == [f"{scheme}://a:7"]
    with pytest.raises(ConfigurationError, match="a listener requires certificate=FILE"):
        parse_url(f"{scheme}://a:0", listening=True)


def test_a_broker_has_a_default_port_and_a_key_of_its_own() -> None:
    url = parse_url("mdp+tls://a/echo?ca=ca.pem")
    assert (url.addresses, url.service) == ((TlsAddress("a", 5555),), "echo")
    url = parse_url("mdp+tls://a?pool=core&key=42&certificate=c.pem&certificate_key=k.pem")
    assert url.tls == TlsSettings(certificate="c.pem", key="k.pem")
    assert url.service == parse_url("mdp://a?pool=core&key=42").service


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mdp+tls://a?certificate=c&key=k", "private key is certificate_key=FILE"),
        ("mdp+tls://a?certificate_key=k", "`key` requires `certificate`"),
        ("mdp+tls://a?colour=red", "unknown option 'colour'"),
        ("mdp://a?ca=x", "'ca' is only for TLS: mdp"),
        ("mdp://a?certificate_key=x", "'certificate_key' is only for TLS"),
        ("flp://a:1?ca=x", "'ca' is only for TLS"),
        ("pirate://a:1?certificate=x", "'certificate' is only for TLS"),
        ("flp+tls://a:1?certificate_key=x", "the option 'key' here, not 'certificate_key'"),
        ("flp+tls://a", "port is missing"),
        ("pirate+tls://*:1", "for listening"),
        ("mdp+tls://a:0", "for listening"),
    ],
)
def test_invalid_urls_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mdp+tls://a:1", "only a broker listens"),
        (f"flp+tls://*:1?{MINE}", "requires public=tls://HOST:PORT"),
        (f"flp+tls://*:1?{MINE}&public=tcp://b:1", "'public'.*cannot be used here"),
        (f"flp+tls://a:1?{MINE}&server_name=b", "'server_name' is only for connecting"),
    ],
)
def test_invalid_urls_to_listen_at_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text, listening=True)


@pytest.mark.parametrize("make", [requite.Client, requite.AsyncClient])
@pytest.mark.parametrize("scheme", ["mdp+tls", "flp+tls", "pirate+tls", "sp+tls"])
def test_a_missing_file_is_an_error_before_the_first_call(scheme: str, make: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot use the ca '/nowhere'"):
        make(f"{scheme}://localhost:1?ca=/nowhere")


# --- addresses to listen at -----------------------------------------------------------------------
def test_the_options_of_an_address(certificates: Certificates) -> None:
    shown, schemes = certificates.server, ("tcp", "tls", "ipc")
    text = f"tls://*:5555?certificate={shown.certificate}&key={shown.key}&ca={certificates.ca}"
    address, tls = read_place(text, schemes, listening=True)
    assert address == TlsAddress("*", 5555)
    assert tls == TlsSettings(certificates.ca, shown.certificate, shown.key, verify_client=True)
    assert read_place(f"tls://a:1?ca={certificates.ca}", schemes, listening=False) == (
        TlsAddress("a", 1),
        TlsSettings(certificates.ca),
    )
    assert read_place("ipc:///run/a?b", schemes, listening=True) == (IpcAddress("/run/a?b"), None)


@pytest.mark.parametrize("listen", [requite.Broker, Queue, listen_at])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls://127.0.0.1:0", r"requires certificate=FILE and key=FILE.*--tls-certificate"),
        ("tls://127.0.0.1:0?certificate=/nowhere", "cannot use the certificate '/nowhere'"),
        ("tls://127.0.0.1:0?colour=red", "unknown option 'colour'; the options are ca, cert"),
        ("tls://127.0.0.1?certificate=x", "the port is missing"),
        ("tls+tcp://127.0.0.1:0", "did you mean tcp://127.0.0.1:0"),
    ],
)
def test_invalid_addresses_are_refused(listen: Any, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        listen(text)


@pytest.mark.parametrize("text", ["tls://*:1", "tls://a:0", "tcp://*:1", "tcp://a:0"])
def test_a_peer_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match="only for listening"):
        stay_connected_to(text)


# --- passwords ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.0.1", "[::1]", "localhost:5555"]
)
def test_a_password_may_be_sent_over_loopback(host: str) -> None:
    assert parse_url(f"mdp://me:secret@{host}/echo").password == "secret"


def test_a_password_may_be_sent_within_a_machine_and_over_tls() -> None:
    for text in ("mdp+ipc://me:secret@/run/x", "mdp+inproc://me:secret@x", "mdp+tls://me:s@host"):
        assert parse_url(text).user == "me"


@pytest.mark.parametrize(
    "hosts", ["host", "10.0.0.1", "[2001:db8::1]", "localhost,host", "0.0.0.0"]
)
def test_a_password_is_not_sent_in_clear_text(hosts: str) -> None:
    text = f"mdp://me:secret@{hosts}/echo"
    with pytest.raises(ConfigurationError, match=r"clear text.*use mdp\+tls://") as caught:
        parse_url(text)
    assert "secret" not in str(caught.value)


def test_what_is_private() -> None:
    private = (
        IpcAddress("/x"),
        InprocAddress("x"),
        TlsAddress("host", 1),
        WsAddress("host", 1, secure=True),
        TcpAddress("::1%1", 1),
    )
    assert all(map(is_private, private))
    for host in ("*", "0.0.0.0", "::", "host", "128.0.0.1", "localhost.example", "127.1"):
        assert not is_private(TcpAddress(host, 1))


def test_a_broker_takes_no_password_in_clear_text() -> None:
    listening = [TcpAddress("127.0.0.1", 1), TcpAddress("0.0.0.0", 5555), TlsAddress("*", 1)]
    with pytest.raises(ConfigurationError, match=r"at tcp://0\.0\.0\.0:5555: .*--insecure"):
        check_passwords_are_private(listening, insecure=False)
    check_passwords_are_private(listening, insecure=True)
    check_passwords_are_private([listening[0], listening[2]], insecure=False)


@pytest.fixture
def certificates(tmp_path: Any) -> Certificates:
    return Certificates(tmp_path)
