"""`requite keys`: certificates that work, files that only their user may read, and refusals."""

from __future__ import annotations

import json
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.certificates import Certificates

from requite.cli import main
from requite.cli.exit_codes import ExitCode
from requite.cli.keys import certificates as reading
from requite.cli.keys.show import lines
from requite.transport.certificate import fingerprint
from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsFailure, TlsSession


def keys(*words: str) -> int:
    """Run `requite keys`, and return the exit code."""
    return main(["keys", *words])


@pytest.fixture
def folder(tmp_path: Path, capsys: Any) -> Path:
    """The folder of an authority."""
    assert keys("new", "ca", str(tmp_path / "keys")) == 0
    capsys.readouterr()
    return tmp_path / "keys"


def make(folder: Path, *words: str) -> None:
    assert keys("new", *words, "--ca", str(folder)) == 0


def meet(folder: Path, listener: str, user: str, host: str = "localhost") -> TlsSession:
    """Return the listener's session after a mutual handshake. Raises `TlsFailure`."""
    ca = folder / "ca.pem"
    server = TlsSettings(ca=ca, certificate=folder / f"{listener}.pem", verify_client=True)
    client = TlsSettings(ca=ca, certificate=folder / f"{user}.pem").session_to(host)
    session = TlsSession(server.listening_context(), None)
    client.begin()
    while to_server := client.output():
        session.receive(to_server)
        if to_client := session.output():
            client.receive(to_client)
    return session


def test_both_sides_verify_each_other(folder: Path) -> None:
    make(folder, "listener", "localhost", "127.0.0.1", "::1", "bücher.example")
    make(folder, "user", "shop")
    for host in ("localhost", "127.0.0.1", "::1", "xn--bcher-kva.example"):
        session = meet(folder, "localhost", "shop", host)
        assert session.peer_credential is not None
        assert session.peer_credential.names[0] == "CN=shop"
    with pytest.raises(TlsFailure, match="not valid for 'elsewhere'"):
        meet(folder, "localhost", "shop", "elsewhere")


def test_a_listener_may_dial_and_a_user_may_not_listen(folder: Path) -> None:
    make(folder, "listener", "localhost")
    make(folder, "user", "shop", "--out", str(folder / "user.pem"))
    assert meet(folder, "localhost", "localhost").established
    with pytest.raises(TlsFailure, match="unsuitable certificate purpose"):
        meet(folder, "user", "localhost")


def test_a_user_signs_no_certificates(folder: Path, tmp_path: Path) -> None:
    """Not even one with a folder that looks like an authority's."""
    make(folder, "user", "shop")
    make(folder, "listener", "localhost")
    forged = tmp_path / "forged"
    forged.mkdir()
    for name in ("ca.pem", "ca.key"):
        (forged / name).write_bytes((folder / "shop.pem").read_bytes())
    make(forged, "user", "ops")
    chain = (forged / "ops.pem").read_bytes() + (folder / "shop.pem").read_bytes()
    (folder / "ops.pem").write_bytes(chain)
    with pytest.raises(TlsFailure, match="invalid CA certificate"):
        meet(folder, "localhost", "ops")


def test_only_their_user_can_read_the_files(folder: Path) -> None:
    make(folder, "listener", "localhost")
    make(folder, "user", "shop")
    assert folder.stat().st_mode & 0o777 == 0o700
    names = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert names == dict.fromkeys(("ca.pem", "ca.key", "localhost.pem", "shop.pem"), 0o600)


def test_no_file_is_overwritten(folder: Path, capsys: Any) -> None:
    make(folder, "user", "shop")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for words in (("ca", str(folder)), ("user", "shop", "--ca", str(folder))):
        assert keys("new", *words) == ExitCode.USAGE
        assert "exists and is never overwritten" in capsys.readouterr().err
    (folder / "ca.pem").unlink()
    assert keys("new", "ca", str(folder)) == ExitCode.USAGE  # the key is still there
    assert (folder / "ca.key").read_bytes() == before[folder / "ca.key"]


def test_each_verb_prints_what_to_do_next(tmp_path: Path, capsys: Any) -> None:
    place = tmp_path / "my keys"
    keys("new", "ca", str(place))
    assert f"next: requite keys new listener localhost 127.0.0.1 --ca '{place}'" in (
        capsys.readouterr().out
    )
    make(place, "listener", "::1")
    assert "requite broker --bind tls://[::1]:5555 --tls-certificate '" in capsys.readouterr().out
    make(place, "user", "shop")
    assert "my%20keys/ca.pem&certificate=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("user", "a/b"), "is no name for a file; give one with --out"),
        (("user", "x" * 65), "has 1 to 64 printable characters"),
        (("user", "a\nb", "--out", "x"), "printable characters"),
        (("listener", "a..b"), "neither a host name nor an IP address"),
        (("user", "shop", "--days", "0"), "--days"),
        (("user", "shop", "--out", "/nowhere/x.pem"), "cannot write /nowhere/x.pem: No such file"),
    ],
)
def test_mistakes(folder: Path, words: tuple[str, ...], why: str, capsys: Any) -> None:
    assert keys("new", *words, "--ca", str(folder)) == ExitCode.USAGE
    assert why in capsys.readouterr().err
    assert len([*folder.iterdir()]) == 2


def test_an_authority_that_cannot_be_used(folder: Path, tmp_path: Path, capsys: Any) -> None:
    def refusal(place: Path) -> str:
        assert keys("new", "user", "shop", "--ca", str(place)) == ExitCode.USAGE
        return str(capsys.readouterr().err)

    assert f"`requite keys new ca {tmp_path}` makes one" in refusal(tmp_path)
    other = tmp_path / "other"
    keys("new", "ca", str(other))
    capsys.readouterr()
    (folder / "ca.key").write_bytes((other / "ca.key").read_bytes())
    assert f"{folder / 'ca.key'} does not belong to" in refusal(folder)
    (folder / "ca.key").write_bytes(b"junk")
    assert f"cannot read the authority in {folder}" in refusal(folder)


def test_the_package_is_named_if_it_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delitem(sys.modules, "requite.cli.keys.certificates")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert keys("new", "user", "shop", "--ca", str(folder)) == ExitCode.USAGE
    assert "pip install 'requite[keys]'" in capsys.readouterr().err


# --- show -----------------------------------------------------------------------------------------
def test_show_prints_names_key_and_expiry(folder: Path, capsys: Any) -> None:
    make(folder, "listener", "localhost", "127.0.0.1", "--days", "30")
    capsys.readouterr()
    path = folder / "localhost.pem"
    der = ssl.PEM_cert_to_DER_cert(
        path.read_text().partition("-----\n-----BEGIN C")[2].join(("-----BEGIN C", ""))
    )
    assert keys("show", str(path)) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[:4] == [
        "subject  CN=localhost",
        "names    localhost, 127.0.0.1",
        f"key      {fingerprint(der)}",
        "issuer   CN=requite CA",
    ]
    assert shown.rstrip().endswith(": 29 days left")
    assert keys("show", str(folder / "ca.pem"), "--json") == 0
    [record] = json.loads(capsys.readouterr().out)["certificates"]
    assert record["is_authority"] is True


def test_show_prints_each_certificate_of_a_chain(tmp_path: Path, capsys: Any) -> None:
    files = Certificates(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(files.ca).read_bytes() + Path(files.other_ca).read_bytes())
    assert keys("show", str(both)) == 0
    assert capsys.readouterr().out.count("subject  ") == 2


def test_show_says_whether_a_certificate_is_valid(folder: Path) -> None:
    [shown] = reading.certificates_in(folder / "ca.pem")
    day = timedelta(days=1)
    ends = {
        shown.valid_from - day: "NOT VALID YET",
        shown.valid_until + day: "EXPIRED",
        shown.valid_until - 1.5 * day: "1 day left",
    }
    for now, end in ends.items():
        assert [*lines(shown, now)][-1].endswith(f": {end}")
    assert shown.valid_from < datetime.now(UTC)  # clocks of other machines may be behind


def test_show_escapes_what_is_not_printable(tmp_path: Path, capsys: Any) -> None:
    names: Any = SimpleNamespace
    now = datetime.now(UTC)
    shown = names(
        subject="CN=\x1b[31m",
        names=(),
        key="",
        issuer="",
        valid_from=now,
        valid_until=now,
        is_authority=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "certificates_in", lambda _path: [shown])
        assert keys("show", str(tmp_path)) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_show_refuses_other_files(tmp_path: Path, content: bytes, capsys: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert keys("show", str(path)) == ExitCode.USAGE
    assert f"cannot read a certificate in {path}" in capsys.readouterr().err
    assert keys("show", str(tmp_path / "missing")) == ExitCode.USAGE
    assert "No such file" in capsys.readouterr().err
