"""`requite broker --primary|--backup`: refused options, the displayed state, and a failed pair."""

from __future__ import annotations

import json

import pytest
from tests.cli.command import requite, running

from requite.cli.exit_codes import ExitCode
from requite.cli.pairing import Pairing
from requite.cli.services import _standing
from requite.errors import ConfigurationError

A, B = "tcp://127.0.0.1:5560", "tcp://127.0.0.1:5561"


def make(**options):
    """Make the pair of these options."""
    pairing = Pairing(**options)
    return pairing.make(pairing.links)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"primary": True}, "both --pair-bind and --peer"),
        ({"backup": True, "peer": A}, "both --pair-bind and --peer"),
        ({"pair_bind": A, "peer": B}, "require --primary or --backup"),
        ({"peer": B}, "require --primary or --backup"),
        ({"pair_heartbeat": 2.0}, "require --primary or --backup"),
        ({"primary": True, "backup": True, "pair_bind": A, "peer": B}, "not both"),
        ({"primary": True, "pair_bind": A, "peer": A}, "its own peer"),
        ({"primary": True, "pair_bind": A, "peer": "mdp://x:1"}, "scheme 'mdp'"),
        ({"primary": True, "pair_bind": A, "peer": B, "pair_heartbeat": 0.0}, "heartbeat"),
    ],
)
def test_invalid_options_are_refused(options, text):
    with pytest.raises(ConfigurationError, match=text):
        make(**options)


def test_a_broker_with_and_without_a_pair():
    assert make() is None
    pair = make(backup=True, pair_bind=A, peer=B)
    assert (pair.view.role.name, pair.view.serves) == ("BACKUP", False)


@pytest.mark.parametrize(
    ("peer", "silent", "heard"),
    [
        (None, False, "the primary has not been heard yet"),
        ("active", True, "the primary has been silent for 3 s"),
        ("passive", False, "the primary is passive"),
    ],
)
def test_services_describes_the_state_of_a_pair(peer, silent, heard):
    pair = {"role": "backup", "state": "active", "epoch": 2, "heard_s_ago": 3.2}
    text = _standing(pair | {"peer": peer, "peer_is_silent": silent})
    assert text == f"backup of a pair, active in epoch 2; {heard}"


@pytest.mark.e2e
def test_a_second_primary_exits_with_advice(tmp_path):
    places = [f"ipc://{tmp_path}/{name}" for name in "ab"]
    common = ("broker", "--bind", "tcp://127.0.0.1:0", "--primary", "--pair-heartbeat", "0.5")
    with running(*common, "--pair-bind", places[0], "--peer", places[1]) as first:
        address = first.line().removeprefix("listening on tcp://")
        # The request makes the first broker active; another primary then exits.
        call = requite("call", f"mdp://{address}/nobody", "x", "--timeout", "3")
        assert call.code in (ExitCode.TIMEOUT, ExitCode.UNAVAILABLE)
        second = requite(*common, "--pair-bind", places[1], "--peer", places[0])
        assert second.code == ExitCode.FAILED
        assert "start one as primary and the other as backup" in second.err
        assert "Traceback" not in second.err
        seen = requite("services", f"mdp://{address}", "--json")
        assert json.loads(seen.out)["pair"]["state"] == "active"
