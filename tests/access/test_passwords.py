"""Hashes of passwords."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from requite.access.passwords import PasswordHash, Passwords, hash_password, parse_hash
from requite.errors import ConfigurationError
from requite.principal import Credential

HASH = hash_password("correct horse")


def test_a_password_matches_its_hash_only() -> None:
    form = parse_hash(HASH)
    assert form.matches(b"correct horse")
    assert not form.matches(b"correct horse ")
    assert hash_password("correct horse") != HASH  # another salt


def test_a_hash_of_rfc_7914() -> None:
    """RFC 7914, section 12: P="pleaseletmein", S="SodiumChloride", N=16384, r=8, p=1."""
    digest = bytes.fromhex(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
    parts = (urlsafe_b64encode(part).decode() for part in (b"SodiumChloride", digest))
    form = parse_hash("scrypt$14$8$1$" + "$".join(parts))
    assert form.digest == digest
    assert form.matches(b"pleaseletmein")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "scrypt$14$8$1$$",
        "scrypt$30$8$1$YWE$" + "YWFh" * 8,
        "scrypt$20$32$1$YWE$" + "YWFh" * 8,
        "scrypt$14$8$0$YWE$" + "YWFh" * 8,
        "bcrypt$14$8$1$YWE$" + "YWFh" * 8,
        "scrypt$14$x$1$YWE$YWE",
        "scrypt$14$8$1$\u00e9$YWE",
        "scrypt$14$8$1$YWE$YWE",
    ],
)
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="requite access hash"):
        parse_hash(text)


@pytest.mark.parametrize("password", ["", "x" * 256])
def test_passwords_that_plain_cannot_carry_are_refused(password: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 255 bytes"):
        hash_password(password)


def test_two_passwords_are_valid_while_one_is_replaced() -> None:
    passwords = Passwords({"shop": (parse_hash(HASH), parse_hash(hash_password("new")))})
    for _ in range(2):  # the second time from memory
        assert passwords.check("shop", "correct horse")
        assert passwords.check("shop", "new")
        assert not passwords.check("shop", "newer")
        assert not passwords.check("other", "new")


def test_a_wrong_password_costs_as_many_hashes_for_each_user_or_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = parse_hash(HASH), parse_hash(hash_password("new"))
    passwords = Passwords({"one": both[:1], "two": both})
    made: list[bytes] = []
    monkeypatch.setattr(PasswordHash, "matches", lambda _self, data: made.append(data))
    counts = []
    for user in ("one", "two", "none"):
        made.clear()
        assert passwords.check(user, "wrong") is None
        counts.append(len(made))
    assert counts == [2, 2, 2]


def test_a_password_proves_by_which_hash_and_is_recalled() -> None:
    both = parse_hash(HASH), parse_hash(hash_password("new"))
    passwords = Passwords({"shop": both})
    assert passwords.recall("shop", "new") is None
    proof = passwords.check("shop", "new")
    assert proof == Credential("plain", ("shop", both[1].mark))
    assert passwords.recall("shop", "new") == proof
    assert passwords.recall("shop", "newer") is None


def test_a_verified_password_is_remembered_as_a_digest_only() -> None:
    passwords = Passwords({"shop": (parse_hash(HASH),)})
    assert passwords.check("shop", "correct horse")
    assert "correct horse" not in repr(vars(passwords))
