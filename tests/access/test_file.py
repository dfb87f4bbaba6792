"""The access file: what is accepted, and what each error says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.access.file import parse, read
from requite.access.passwords import hash_password
from requite.errors import ConfigurationError
from requite.principal import Quota

GOOD = b"""
[user.shop]
tls = "CN=shop"
call = ["price", "pay.*"]    # a comment
titanic = ["submit"]

[user.pay-worker]
curve = [
    "old key",
    "new key",
]
serve = [
    "pay.*",
    "refund",
]
quota = "small"

[user."ops@home"]
local = [0, 1000]
admin = ["*"]

[user.guest]
anonymous = true

[quota.default]
bytes = "64M"

[quota.small]
bytes = 4096
connections = 2
"""

HUGE = "0x" + "f" * 5000  # Python makes no text of such a number


def test_a_good_file() -> None:
    users = parse(GOOD).users
    assert list(users) == ["shop", "pay-worker", "ops@home", "guest"]
    shop, worker, ops, guest = users.values()
    assert shop.credentials == {("tls", "CN=shop")}
    assert (shop.rights.call, shop.rights.titanic) == (("price", "pay.*"), ("submit",))
    assert shop.quota == Quota(bytes=64 << 20)
    assert worker.credentials == {("curve", "old key"), ("curve", "new key")}
    assert worker.quota == Quota(bytes=4096, connections=2)
    assert ops.credentials == {("local", "0"), ("local", "1000")}
    assert (guest.anonymous, shop.anonymous) == (True, False)


@pytest.mark.parametrize(
    ("user", "key", "value", "line"),
    [
        ("shop", "", "", 2),
        ("shop", "call", "", 4),
        ("shop", "call", "pay.*", 4),
        ("pay-worker", "serve", "refund", 14),
        ("pay-worker", "serve", "pay.*", 13),
        ("ops@home", "admin", "*", 20),
        ("guest", "call", "", 22),
        ("nobody", "call", "", 0),
    ],
)
def test_lines_for_explanations(user: str, key: str, value: str, line: int) -> None:
    assert parse(GOOD).line_of(user, key, value) == line


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[user.shop", "access.toml is not TOML"),
        ("a = " + "[" * 5000, "access.toml is not TOML"),
        ("a = " + "1" * 5000, "access.toml is not TOML"),
        ("[users.shop]", "there is no such table; did you mean 'user'?"),
        ("user = 3", "write it as tables, [user.NAME]"),
        ("[user]\nshop = 3", "write it as a table, [user.shop]"),
        ("[user.'a b']", "the name of a user has letters"),
        (f"[user.{'n' * 256}]", "the name of a user has letters"),
        ("[user.shop]\ncalls = []", "line 2 of access.toml: [user.shop] calls: there is no such"),
        ("[user.shop]\ncalls = []", "did you mean 'call'?"),
        ("[user.shop]\ncall = 'x'", "write it as a list"),
        ("[user.shop]\ncall = [1]", "each item is a text"),
        ("[user.shop]\ncall = ['']", "with at least one character"),
        ('[user.shop]\ncall = ["a\\u0000"]', "each item is a text"),
        ("[user.shop]\nadmin = ['pair']", "'pair' does not exist; it is one of stats"),
        ("[user.shop]\nadmin = ['stat']", "'stat' does not exist; did you mean 'stats'?"),
        ("[user.shop]\ntitanic = ['all']", "it is one of submit"),
        ("[user.shop]\ntls = 3", "write it as text"),
        ("[user.shop]\nlocal = true", "write it as text"),
        ("[user.shop]\nlocal = -1", "line 2 of access.toml: [user.shop] local: a user id is 0 to"),
        ("[user.shop]\nlocal = [0, 4294967295]", "a user id is 0 to 4294967294"),
        (f"[user.shop]\nlocal = {HUGE}", "a user id is 0 to 4294967294"),
        ("[user.shop]\nanonymous = 1", "it is true or false"),
        ("[user.shop]\npassword = 'secret'", "it is not a hash of a password"),
        ("[user.shop]\npassword = 7", "write it as text"),
        ("[user.a]\ntls = 'CN=x'\n[user.b]\ntls = 'CN=x'", "the user 'a' has it as well"),
        ("[user.a]\nanonymous = true\n[user.b]\nanonymous = true", "the user 'a' has it as well"),
        ("[user.a]\nquota = 'big'", "there is no table [quota.big]"),
        (f"[user.a]\nquota = {HUGE}", "it is the name of a table [quota.NAME]"),
        (f"[user.a]\n{HUGE} = 1", "there is no such key"),
        (f"[quota.big]\nbytes = {HUGE}", "a whole number of 1 to 4611686018427387904"),
        ("[quota.big]\nbytes = 4611686018427387905", "a whole number of 1 to 4611686018427387904"),
        ("[quota.big]\nbytes = '9999999999G'", "a whole number of 1 to 4611686018427387904"),
        ("[quota.big]\nbytes = '64MB'", 'a size as "64M"'),
        ("[quota.big]\nbytes = 0", "a whole number of 1 to"),
        ("[quota.big]\nbyte = 1", "'byte' does not exist; did you mean 'bytes'?"),
        ("[quota]\nbig = 1", "write it as a table"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse(text.encode())
    assert complaint in str(failure.value)


def test_the_largest_numbers() -> None:
    file = parse(b"[user.shop]\nlocal = 4294967294\n[quota.default]\nbytes = 4611686018427387904")
    shop = file.users["shop"]
    assert shop.credentials == {("local", "4294967294")}
    assert shop.quota == Quota(bytes=1 << 62)


def test_errors_never_show_a_password() -> None:
    for value in ("'hunter2'", "'scrypt$99$8$1$aHVudGVyMg$aHVudGVyMg'", "['hunter2']"):
        with pytest.raises(ConfigurationError) as failure:
            parse(f"[user.shop]\npassword = {value}".encode())
        assert "hunter2" not in str(failure.value)
        assert "aHVudGVyMg" not in str(failure.value)


def test_users_do_not_show_their_hashes() -> None:
    hashed = hash_password("hunter2")
    file = parse(f"[user.shop]\npassword = '{hashed}'".encode())
    assert hashed[12:] not in repr(file)
    assert "digest" not in repr(file)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(GOOD)
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read(path)
    path.chmod(0o600)
    assert len(read(path).users) == 4


def test_an_empty_file_is_refused_and_a_comment_admits_nobody(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.touch(0o600)
    with pytest.raises(ConfigurationError, match="is empty"):
        read(path)
    path.write_text("\n \n")
    with pytest.raises(ConfigurationError, match="is empty"):
        read(path)
    path.write_text("# nobody\n")
    assert read(path).users == {}


@pytest.mark.parametrize("kind", ["absent", "folder", "fifo"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "access.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match=r"access\.toml"):
        read(path)


_values = st.recursive(
    st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.hypothesis
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_file_or_an_error(data: bytes) -> None:
    outcome: object = None
    try:
        outcome = parse(data).users
    except ConfigurationError as error:
        outcome = str(error)
    assert outcome or outcome == {}
