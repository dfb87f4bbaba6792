"""The identity table of a ROUTER socket."""

import pytest

from requite.errors import RemoteViolation
from requite.framing import IdentityTable


class Peer:
    """Stands for a connection; compared by identity."""


def test_anonymous_peers_get_fresh_identities_of_five_bytes():
    table: IdentityTable[Peer] = IdentityTable(start=0x01020304)
    first, second = Peer(), Peer()
    assert table.admit(first, b"") == (b"\0\1\2\3\4", None)
    assert table.admit(second, b"") == (b"\0\1\2\3\5", None)
    assert table.find(b"\0\1\2\3\4") is first
    assert table.find(b"\0\1\2\3\5") is second
    assert table.find(b"\0\1\2\3\6") is None
    assert len(table) == 2


def test_fresh_identities_wrap_at_32_bits_and_skip_those_in_use():
    table: IdentityTable[Peer] = IdentityTable(start=0xFFFF_FFFF)
    assert table.admit(Peer(), b"").identity == b"\0\xff\xff\xff\xff"
    assert table.admit(Peer(), b"").identity == b"\0\0\0\0\0"
    again: IdentityTable[Peer] = IdentityTable(start=(1 << 32) + 7)
    again.admit(Peer(), b"\0\0\0\0\x07")
    again.admit(Peer(), b"\0\0\0\0\x08")
    assert again.admit(Peer(), b"").identity == b"\0\0\0\0\x09"


def test_an_announced_identity_is_kept():
    table: IdentityTable[Peer] = IdentityTable(start=0)
    peer = Peer()
    assert table.admit(peer, b"worker-1") == (b"worker-1", None)
    assert table.find(b"worker-1") is peer


def test_a_second_peer_with_an_identity_in_use_is_refused():
    table: IdentityTable[Peer] = IdentityTable(start=0)
    holder = Peer()
    table.admit(holder, b"worker-1")
    with pytest.raises(RemoteViolation, match="worker-1"):
        table.admit(Peer(), b"worker-1")
    assert table.find(b"worker-1") is holder


def test_handover_returns_the_displaced_peer_whose_loss_changes_nothing():
    table: IdentityTable[Peer] = IdentityTable(start=0, handover=True)
    holder, newcomer = Peer(), Peer()
    table.admit(holder, b"worker-1")
    assert table.admit(newcomer, b"worker-1") == (b"worker-1", holder)
    assert table.find(b"worker-1") is newcomer
    table.forget(b"worker-1", holder)
    assert table.find(b"worker-1") is newcomer
    assert len(table) == 1


def test_forgetting_a_peer_frees_its_identity():
    table: IdentityTable[Peer] = IdentityTable(start=0)
    peer = Peer()
    table.admit(peer, b"worker-1")
    table.forget(b"worker-1", peer)
    table.forget(b"worker-1", peer)
    assert len(table) == 0
    assert table.admit(peer, b"worker-1").displaced is None
