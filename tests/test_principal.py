"""Principals and their rights."""

from __future__ import annotations

import pytest

from requite.principal import ANYONE, Credential, Principal, Quota, Rights, matches


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("price", "price", True),
        ("price", "prices", False),
        ("pay.*", "pay.card", True),
        ("pay.*", "pay", False),
        ("*", "anything", True),
        ("*", "titanic.request", False),
        ("t*", "titanic.request", False),
        ("titanic.*", "titanic.request", True),
        ("titanic.*", "titanic", False),
        ("*", "thumbs/!managers", False),
        ("thumbs/*", "thumbs/!managers", False),
        ("thumbs/!managers", "thumbs/!managers", True),
        ("[ab]", "a", True),
    ],
)
def test_a_glob_matches_whole_names_and_must_spell_out_reserved_ones(
    glob: str, name: str, expected: bool
) -> None:
    assert matches(glob, name) is expected


def test_rights_grant_by_verb() -> None:
    rights = Rights(call=("price", "pay.*"), admin=("stats",))
    assert rights.match("call", "pay.card") == "pay.*"
    assert rights.match("serve", "pay.card") is None
    assert rights.match("admin", "stats") == "stats"


def test_a_principal_without_rights_may_do_nothing_and_one_without_a_table_everything() -> None:
    assert ANYONE.may("admin", "stats")
    assert not Principal("shop", Rights()).may("call", b"price")
    assert Principal("shop", Rights(call=("price",))).may("call", b"price")


def test_new_rights_forget_what_was_allowed() -> None:
    principal = Principal("shop", Rights(call=("*",)))
    principal.remember(b"price")
    assert not principal.grant(Rights(call=("*",)), Quota())
    assert principal.allowed == {b"price"}
    assert principal.grant(Rights(), Quota())
    assert principal.allowed == set()


def test_the_memory_of_allowed_names_is_bounded() -> None:
    principal = Principal("shop")
    for number in range(10_000):
        principal.remember(b"%d" % number)
    assert len(principal.allowed) <= 4096


def test_names_of_principals() -> None:
    assert str(ANYONE) == "anonymous"
    assert str(Principal(str(Credential("tls", ("CN=shop", "sha256:00"))))) == "tls:CN=shop"
