"""`Access`: from credentials to principals, and changes of the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.broker import BrokerBench

from requite.access import Access
from requite.access.exposure import check_exposure
from requite.access.file import parse
from requite.access.passwords import hash_password, parse_hash
from requite.errors import ConfigurationError
from requite.framing.base import CredentialsRefused
from requite.principal import INSIDE, Credential
from requite.protocols.majordomo.permissions import ACTS, lacks_to_call
from requite.shell.connections import Endpoint, no_framing
from requite.transport.address import parse_address
from requite.transport.tls import TlsSettings

HASH = hash_password("secret")
FILE = f"""
[user.shop]
tls = ["CN=shop", "sha256:aa"]
call = ["price", "pay.*"]

[user.both]
curve = "key"
local = 7
password = "{HASH}"

[user.guest]
anonymous = true
call = ["time"]
""".encode()


@pytest.fixture
def access() -> Access:
    return Access(parse(FILE))


@pytest.mark.parametrize(
    ("credential", "user"),
    [
        (Credential("tls", ("O=Acme,CN=shop", "CN=shop", "sha256:bb")), "shop"),
        (Credential("tls", ("CN=other", "sha256:aa")), "shop"),
        (Credential("curve", ("key",)), "both"),
        (Credential("local", ("7",)), "both"),
        (Credential("local", ("8",)), "guest"),
        (Credential("plain", ("both", parse_hash(HASH).mark)), "both"),
        (None, "guest"),
    ],
)
def test_a_user_is_recognised_by_any_of_its_credentials(
    access: Access, credential: Credential | None, user: str
) -> None:
    assert access.identify(credential, "peer").name == user


@pytest.mark.parametrize(
    "credential",
    [
        Credential("tls", ("CN=shopper",)),
        Credential("tls", ("key",)),
        Credential("curve", ("CN=shop",)),
        Credential("plain", ("shop",)),  # has no password
        Credential("plain", ("nobody", "")),
        Credential("plain", ("both", "the salt of a hash that was removed")),
    ],
)
def test_a_credential_of_nobody_is_refused_with_its_name(
    access: Access, credential: Credential
) -> None:
    with pytest.raises(CredentialsRefused, match=str(credential)):
        access.identify(credential, "peer")


def test_without_an_anonymous_user_a_peer_needs_a_credential() -> None:
    access = Access(parse(b"[user.shop]\ntls = 'CN=shop'"))
    for credential in (None, Credential("local", ("0",))):
        with pytest.raises(CredentialsRefused, match=r"no user of access\.toml has"):
            access.identify(credential, "peer")


def test_a_part_of_the_own_process_is_admitted(access: Access) -> None:
    assert access.identify(Credential("inside", ("x",)), "peer") is INSIDE


def test_connections_of_a_user_share_a_principal_whose_rights_change(access: Access) -> None:
    shop = access.identify(Credential("tls", ("CN=shop",)), "a")
    assert access.identify(Credential("tls", ("x", "sha256:aa")), "b") is shop
    assert shop.may("call", "price")
    changed = access.load(parse(FILE.replace(b'"price", ', b"")))
    assert changed == ["shop"]
    assert not shop.may("call", "price")
    assert shop.may("call", "pay.card")
    assert access.identify(Credential("tls", ("CN=shop",)), "a") is shop
    assert access.load(parse(b"")) == ["shop", "both", "guest"]
    assert not shop.may("call", "pay.card")
    with pytest.raises(CredentialsRefused):
        access.identify(Credential("tls", ("CN=shop",)), "a")


def test_a_changed_file_is_read_once_and_a_bad_one_keeps_the_users(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(FILE)
    path.chmod(0o600)
    access = Access.read(path)
    assert access.changed_file() is None
    path.write_bytes(b"[user.shop]\ncall = 1")
    with pytest.raises(ConfigurationError, match="line 2"):
        access.changed_file()
    assert access.changed_file() is None
    assert access.identify(None, "peer").name == "guest"
    os.replace(_written(tmp_path / "new", b"[user.only]\nanonymous = true"), path)
    file = access.changed_file()
    assert file is not None
    access.load(file)
    assert access.identify(None, "peer").name == "only"
    assert access.changed_file(anyway=True) is not None


def test_a_file_whose_mode_is_corrected_is_read(tmp_path: Path) -> None:
    path = _written(tmp_path / "access.toml", FILE)
    access = Access.read(path)
    os.replace(_written(tmp_path / "new", b"[user.only]\nanonymous = true"), path)
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        access.changed_file()
    assert access.changed_file() is None
    path.chmod(0o600)
    assert access.changed_file() is not None


_RESERVED = [
    *(f"titanic.{each}" for each in ("request", "reply", "close", "list", "show", "x")),
    *("mmi.service", "mmi.ping", "mmi.whoami", "mmi.under", "mmi.stats", "mmi.x", "mmi.x/eu"),
    *(each.decode() for each in ACTS),
    *("jobs/!managers", "jobs/eu", "jobs", "price", "mmi", "titanic"),
]
_globs = st.lists(st.sampled_from(["*", "titanic.*", "mmi.*", "*/!*", "jobs*", *_RESERVED]))
_files = st.fixed_dictionaries(
    {
        "call": _globs,
        "serve": _globs,
        "titanic": st.sampled_from([[], ["submit"]]),
        "pool": st.sampled_from([[], ["jobs"], ["*"], ["mmi.*"]]),
        "admin": st.lists(st.sampled_from(["*", "stats", "titanic", *ACTS.values()])),
    }
)


@pytest.mark.hypothesis
@given(_files, st.sampled_from(_RESERVED))
@example({"call": ["titanic.*", "mmi.*"]}, "titanic.list")
@example({"call": ["titanic.*", "mmi.*"]}, "titanic.request")
@example({"call": ["titanic.*", "mmi.*"]}, "mmi.stats")
@example({"serve": ["mmi.*"]}, "mmi.x")
def test_a_decision_is_that_of_the_broker(rights: dict[str, list[str]], name: str) -> None:
    lines = ["[user.me]", "anonymous = true", *(f"{key} = {rights[key]}" for key in rights)]
    access = Access(parse("\n".join(lines).encode()))
    me = access.identify(None, "peer")
    called, served = (access.decide("me", verb, name) for verb in ("call", "serve"))
    assert called.allowed == (not lacks_to_call(me, name.encode(), []))
    bench = BrokerBench()
    bench.worker("w", name.encode(), principal=me)
    assert served.allowed == ("w" not in bench.disconnected)
    for decision in (called, served):
        key, equals, _values = lines[decision.line - 1].partition(" = ")
        if decision.line and equals:
            assert f"its {key}" in decision.why or f"it has no {key}" in decision.why


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_a_decision_is_explained_with_its_line(access: Access) -> None:
    assert access.decide("shop", "call", "pay.card") == (True, "'pay.*' in its call matches", 4)
    assert access.decide("shop", "call", "pay") == (
        False,
        "no glob of its call matches: price, pay.*",
        4,
    )
    assert access.decide("shop", "serve", "pay") == (False, "it has no serve", 2)
    assert access.decide("shop", "call", "titanic.list") == (
        False,
        "it needs the right to admin 'titanic', and it has no admin",
        2,
    )
    assert access.decide("shop", "act", "both") == (False, "it has no act", 2)
    door = Access(parse(b'[user.door]\nact = ["team-*"]\ncall = ["*"]'))
    assert door.decide("door", "act", "team-a") == (True, "'team-*' in its act matches", 2)
    assert not door.decide("door", "act", "both").allowed, "no other right includes it"
    assert access.decide("shop", "call", "mmi.ping") == (True, "every user may call it", 0)
    with pytest.raises(ConfigurationError, match="has no user 'nobody'"):
        access.decide("nobody", "call", "x")


@pytest.mark.parametrize(
    ("address", "verifies", "is_refused"),
    [
        ("tcp://0.0.0.0:1", False, True),
        ("tcp://[::]:1", False, True),
        ("tcp://10.0.0.1:1", False, True),
        ("tcp://example.org:1", False, True),
        ("tls://10.0.0.1:1", False, True),
        ("tls://10.0.0.1:1", True, False),
        ("tcp://127.0.0.1:1", False, False),
        ("tcp://[::1]:1", False, False),
        ("tcp://localhost:1", False, False),
        ("ipc:///tmp/x", False, False),
        ("inproc://x", False, False),
    ],
)
def test_a_listener_that_knows_nobody_stays_on_its_machine(
    address: str, verifies: bool, is_refused: bool
) -> None:
    tls = TlsSettings(ca="ca.pem", verify_client=True) if verifies else None
    schemes = ("tcp", "tls", "ipc", "inproc")
    listen = [Endpoint(parse_address(address, schemes), no_framing, None, tls)]
    for is_guarded, insecure in ((True, False), (False, True)):
        check_exposure(listen, is_guarded=is_guarded, insecure=insecure)
    if is_refused:
        with pytest.raises(ConfigurationError, match="--insecure"):
            check_exposure(listen, is_guarded=False, insecure=False)
    else:
        check_exposure(listen, is_guarded=False, insecure=False)


def test_only_the_hash_that_has_matched_admits_a_connection() -> None:
    """A connection stays while its password is valid, and ends when that is removed."""
    old, new = hash_password("old"), hash_password("new")
    row = "[user.shop]\npassword = {}\n"
    both = parse(row.format([old, new]).encode())
    access = Access(both)
    by_old, by_new = (access.check_password("shop", each) for each in ("old", "new"))
    assert access.identify(by_old, "peer") is access.identify(by_new, "peer")
    access.load(parse(row.format([new]).encode()))
    assert access.identify(by_new, "peer").name == "shop"
    with pytest.raises(CredentialsRefused, match="plain:shop"):
        access.identify(by_old, "peer")
    assert access.recall_password("shop", "old") is None
