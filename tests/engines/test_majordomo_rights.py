"""Rights of principals at a broker (docs/protocols/mdp-0.3.md, "Rights")."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.chronicle import Chronicle, Kind
from requite.engine import Cause, Received, RightsChanged, Send
from requite.principal import ANYONE, INSIDE, Principal, Quota, Rights
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientRequest,
    Disconnect,
    WorkerCancel,
    WorkerRequest,
)
from requite.request import Status

SHOP = b"the-shop"


def principal(name: str = "shop", **rights: tuple[str, ...]) -> Principal:
    return Principal(name, Rights(**rights))


def decisions(chronicle: Chronicle) -> list[tuple[int, str, str, str]]:
    """Return the access decisions of a broker: kind, principal, verb and name."""
    return [
        (row.kind, row.worker.decode(), row.error, row.service.decode())
        for row in chronicle.event_rows
        if row.kind in (Kind.ADMITTED, Kind.DENIED)
    ]


# --- calls ----------------------------------------------------------------------------------------
@requirement("mdp03:denied")
def test_a_request_without_the_right_is_denied_at_once_and_never_runs() -> None:
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("w", b"pay")
    bench.client("c", principal=principal(call=("price",)))
    bench.request("c", 1, service=b"pay")
    final = bench.finals("c")[0]
    assert (final.status, final.attempts) == (Status.DENIED, 0)
    assert b"shop has no right to call 'pay'" in final.body[0]
    assert bench.requests("w") == []
    assert bench.broker.snapshot().pending == 0
    assert decisions(chronicle) == [(Kind.DENIED, "shop", "call", "pay")]


@requirement("mdp03:denied")
def test_a_request_with_the_right_runs() -> None:
    bench = BrokerBench()
    bench.worker("w", b"pay.card")
    bench.client("c", principal=principal(call=("pay.*",)))
    for number in (1, 2):
        bench.request("c", number, service=b"pay.card")
        bench.final("w")
    assert [final.status for final in bench.finals("c")] == [0, 0]


@requirement("mdp03:denied")
@pytest.mark.parametrize("service", [b"price", b"absent"])
def test_who_has_no_rights_cannot_find_out_which_services_there_are(service: bytes) -> None:
    bench = BrokerBench()
    bench.worker("w", b"price")
    bench.client("c", principal=principal())
    bench.request("c", 1, service=service)
    assert bench.finals("c")[0].status == Status.DENIED
    assert [each.service for each in bench.broker.snapshot().services] == ["price"]


@requirement("mdp03:features")
def test_a_client_that_does_not_know_denied_gets_failed() -> None:
    bench = BrokerBench()
    bench.client("c", principal=principal(), features=())
    bench.request("c", 1)
    final = bench.finals("c")[0]
    assert (final.status, final.attempts) == (Status.FAILED, 0)
    assert b"no right" in final.body[0]
    assert bench.noted("refused")[0].facts["status"] == "DENIED"


@requirement("mdp03:features")
def test_unknown_features_are_ignored() -> None:
    bench = BrokerBench()
    bench.worker("w", features=("levitation", "principals"))
    bench.request("c", 1)
    assert len(bench.requests("w")) == 1


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_older_clients_are_denied_in_silence_unless_they_are_to_be_told(version: str) -> None:
    for tell in (False, True):
        bench = BrokerBench(tell_old_clients=tell)
        bench.worker("w")
        bench.client("c", version, principal())
        bench.request("c", 1)
        assert bench.requests("w") == []
        bodies = [final.body for final in bench.sent("c")]
        assert [body[0] for body in bodies] == ([b"requite-error DENIED"] if tell else [])


# --- management -----------------------------------------------------------------------------------
@requirement("mdp03:denied")
@pytest.mark.parametrize(
    ("name", "body", "rights", "allowed"),
    [
        (b"mmi.service", b"x", {"call": ("x",)}, True),
        (b"mmi.ping", b"", {}, True),
        (b"mmi.whoami", b"", {}, True),
        (b"mmi.stats", b"", {}, False),
        (b"mmi.stats", b"", {"call": ("*",)}, False),
        (b"mmi.stats", b"", {"admin": ("stats",)}, True),
        (b"mmi.census", b"", {"call": ("*",)}, False),
        (b"mmi.census", b"", {"admin": ("stats",)}, True),
        (b"mmi.stats", b"", {"admin": ("*",)}, True),
        (b"mmi.under", b"thumbs/", {}, False),
        (b"mmi.under", b"thumbs/", {"pool": ("thumbs",)}, True),
        (b"mmi.under", b"", {"pool": ("thumbs",)}, False),
        (b"mmi.under", b"other/", {"pool": ("thumbs",)}, False),
    ],
)
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_management_is_a_right_of_its_own(
    name: bytes, body: bytes, rights: dict[str, Any], allowed: bool, version: str
) -> None:
    bench = BrokerBench()
    bench.client("c", version, principal(**rights))
    bench.request("c", 1, body, service=name)
    final = bench.finals("c")[0]
    if version == "0.3":
        assert final.status == (Status.OK if allowed else Status.DENIED)
    else:
        assert (final.body == [b"403"]) is not allowed


def test_whoami_tells_a_client_who_it_is() -> None:
    bench = BrokerBench()
    bench.client("c", principal=principal(call=("price",)))
    bench.client("d")
    for client in ("c", "d"):
        bench.request(client, 1, service=b"mmi.whoami")
    told = [json.loads(bench.finals(client)[0].body[0]) for client in ("c", "d")]
    assert (told[0]["principal"], told[0]["rights"]["call"]) == ("shop", ["price"])
    assert told[1] == {"principal": "", "rights": None}


# --- Titanic --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "body", "rights", "missing"),
    [
        (b"titanic.request", b"pay", {"titanic": ("submit",), "call": ("pay",)}, ""),
        (b"titanic.request", b"pay", {"titanic": ("submit",), "call": ("price",)}, "call 'pay'"),
        (b"titanic.request", b"pay", {"call": ("*",)}, "titanic 'submit'"),
        (b"titanic.reply", b"t", {"titanic": ("submit",)}, ""),
        (b"titanic.close", b"t", {"titanic": ("submit",)}, ""),
        (b"titanic.reply", b"t", {"call": ("*", "titanic.*")}, "titanic 'submit'"),
        (b"titanic.list", b"", {"titanic": ("submit",)}, "admin 'titanic'"),
        (b"titanic.show", b"t", {"titanic": ("submit",)}, "admin 'titanic'"),
        (b"titanic.promote", b"", {"call": ("*",)}, "admin 'titanic'"),
        (b"titanic.list", b"", {"admin": ("titanic",)}, ""),
    ],
)
def test_durable_requests_need_rights_to_submit_and_to_call(
    name: bytes, body: bytes, rights: dict[str, Any], missing: str
) -> None:
    bench = BrokerBench()
    bench.worker("titanic", name, principal=INSIDE)
    bench.client("c", principal=principal(**rights))
    bench.request("c", 1, body, service=name)
    assert len(bench.requests("titanic")) == (not missing)
    assert [final.body[0].decode() for final in bench.finals("c")] == (
        [
            f"shop has no right to {missing}; the broker's operator can grant it in the access file"
            f" ({missing.split()[0]} = [...])"
        ]
        if missing
        else []
    )


# --- workers --------------------------------------------------------------------------------------
@requirement("mdp03:worker-denied")
def test_a_worker_without_the_right_gets_no_requests_and_hears_why() -> None:
    """Attack 1 of the security design: READY for another user's service."""
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("thief", b"pay", principal=principal("thief", call=("*",)))
    bench.worker("w", b"pay", principal=principal("pay-worker", serve=("pay",)))
    bench.request("c", 1, service=b"pay")
    assert bench.requests("thief") == []
    assert len(bench.requests("w")) == 1
    farewell = bench.sent("thief")[-1]
    assert isinstance(farewell, Disconnect)
    assert b"thief has no right to serve 'pay'" in farewell.reason
    assert "no right" in bench.disconnected["thief"]
    assert decisions(chronicle) == [
        (Kind.DENIED, "thief", "serve", "pay"),
        (Kind.ADMITTED, "pay-worker", "serve", "pay"),
    ]


@requirement("mdp03:worker-instance-owner")
def test_a_worker_cannot_have_the_instance_of_another_principals_worker() -> None:
    """Neither a journal nor `mmi.kick` could tell them apart."""
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("w", b"pay", instance=b"instance", principal=principal("pay", serve=("pay",)))
    eve = principal("eve", serve=("eve",))
    bench.worker("eve", b"eve", instance=b"instance", principal=eve)
    farewell = bench.sent("eve")[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason == b"a worker of another principal has the instance 696e7374616e6365"
    assert decisions(chronicle)[-1] == (Kind.DENIED, "eve", "serve", "eve")
    bench.client("ops", principal=principal("ops", admin=("kick",)))
    bench.request("ops", 1, b"instance".hex().encode(), service=b"mmi.kick")
    assert json.loads(bench.finals("ops")[0].body[-1])["kicked"] == 1
    bench.worker("later", b"eve", instance=b"instance", principal=eve)
    assert "later" not in bench.disconnected, "nobody has the instance any more"


@requirement("mdp03:worker-instance-owner")
@pytest.mark.parametrize("owner", [principal("pay", serve=("*",)), ANYONE])
def test_workers_of_one_principal_may_have_the_same_instance(owner: Principal) -> None:
    bench = BrokerBench()
    again = Principal(owner.name, owner.rights)  # without an access file: remembered for a while
    for peer, who in (("old", owner), ("new", again)):
        bench.worker(peer, instance=b"instance", principal=who)
    bench.lose("old")
    bench.worker("eve", instance=b"instance", principal=principal("eve", serve=("*",)))
    assert list(bench.disconnected) == ["eve"], "the new one still has it"


@requirement("mdp03:worker-instance-owner")
@pytest.mark.parametrize("versions", [("0.2", "0.3"), ("0.3", "0.2")])
def test_a_worker_without_an_instance_is_known_by_its_address(versions: tuple[str, str]) -> None:
    """In dialect 0.2 the address; in 0.3 the instance."""
    bench = BrokerBench()
    names = ("instance", "x") if versions[0] == "0.2" else ("x", "instance")
    for peer, version, user in zip(names, versions, ("pay", "eve"), strict=True):
        who = principal(user, serve=("*",))
        bench.worker(peer, version=version, instance=b"instance", principal=who)
    assert list(bench.disconnected) == [names[1]]


@requirement("mdp03:features")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_a_worker_that_does_not_know_reasons_gets_none(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version, principal=principal(), features=())
    assert bench.sent("w")[-1] == Disconnect()


@requirement("mdp03:worker-denied")
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_workers_of_older_dialects_need_the_right_too(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version, principal=principal())
    bench.request("c", 1)
    assert bench.requests("w") == []


@requirement("mdp03:reserved")
@pytest.mark.parametrize(
    ("name", "rights", "allowed"),
    [
        (b"titanic.request", {"serve": ("*",)}, False),
        (b"titanic.request", {"serve": ("titanic.*",)}, True),
        (b"thumbs/!managers", {"serve": ("*", "thumbs/*")}, False),
        (b"thumbs/!managers", {"pool": ("thumbs",)}, True),
        (b"thumbs/!managers", {"pool": ("other",)}, False),
        (b"thumbs/7", {"pool": ("thumbs",)}, True),
        (b"thumbs/7", {"serve": ("thumbs/*",)}, True),
    ],
)
def test_reserved_names_are_not_in_a_pattern_that_does_not_say_so(
    name: bytes, rights: dict[str, Any], allowed: bool
) -> None:
    """Attack 4 of the security design: squatted names of Titanic and of managers."""
    bench = BrokerBench()
    bench.worker("w", name, principal=principal(**rights))
    assert ("w" in bench.disconnected) is not allowed


@requirement("mdp03:reserved")
def test_nobody_else_serves_the_names_of_a_titanic_inside_the_broker() -> None:
    bench = BrokerBench(titanic_inside=True)
    bench.worker("squatter", b"titanic.request", principal=ANYONE)
    bench.worker("titanic", b"titanic.request", principal=INSIDE)
    assert "squatter" in bench.disconnected
    assert "titanic" not in bench.disconnected


# --- principals of requests -----------------------------------------------------------------------
@requirement("mdp03:worker-principal")
def test_a_worker_learns_whose_request_it_gets() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.worker("old", features=())
    bench.client("c", principal=principal(call=("*",)))
    for number in (1, 2):
        bench.request("c", number)
    assert [each.principal for each in bench.requests("w")] == [b"shop"]
    assert [each.principal for each in bench.requests("old")] == [b""]


@requirement("mdp03:worker-principal")
def test_only_a_part_of_the_brokers_process_may_speak_for_another_principal() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=3)
    bench.client("titanic", principal=INSIDE)
    bench.client("c", principal=principal("thief", call=("*",)))
    request = ClientRequest(b"echo", [b"x"], 1, principal=b"shop")
    bench.feed(Received("titanic", [request]))
    bench.feed(Received("c", [by_version("0.3").encode(request)]))
    assert [each.principal for each in bench.requests("w")] == [b"shop"]
    assert bench.finals("c")[0].status == Status.DENIED


@requirement("mdp03:rights-changed")
def test_a_stored_request_of_a_user_that_has_lost_the_right_is_denied_when_it_is_sent() -> None:
    bench = BrokerBench()
    owners = {"shop": principal("shop", call=("echo",)), "gone": principal("gone")}
    bench.broker.authorizer.principal_named = owners.__getitem__
    bench.worker("w", capacity=3)
    bench.client("titanic", principal=INSIDE)
    stored = [
        ClientRequest(b"echo", [b"x"], number, principal=name)
        for number, name in enumerate((b"shop", b"gone", b""), start=1)
    ]
    sent = [
        effect
        for effect in bench.broker.handle([Received("titanic", stored)], bench.now)
        if isinstance(effect, Send)
    ]
    told: list[Any] = [effect.message for effect in sent if effect.peer == "titanic"]
    assert [(final.request_id, final.status) for final in told] == [(2, Status.DENIED)]
    assert [effect.peer for effect in sent] == ["w", "titanic", "w"]


@requirement("mdp03:call-id-owner")
def test_a_call_id_of_another_principal_is_replaced() -> None:
    """Attack 12 of the security design: a receipt stored for another principal's call id."""
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("w", capacity=9)
    bench.client("c", principal=principal("shop", call=("*",)))
    bench.client("thief", principal=principal("thief", call=("*",)))
    bench.client("again", principal=principal("shop", call=("*",)))
    call_id = SHOP + bytes(7) + b"\x01"
    for peer in ("c", "thief", "again"):
        bench.request(peer, 1, call_id=call_id)
    requests: list[WorkerRequest] = bench.requests("w")
    assert [each.call_id == call_id for each in requests] == [True, False, True]
    assert requests[1].call_id[0] & 0x80  # made up by the broker
    assert (Kind.DENIED, "thief", "call id", "") in decisions(chronicle)


@requirement("mdp03:call-id-owner")
def test_a_user_that_makes_up_call_ids_has_only_its_own_forgotten() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    bench.client("c", principal=principal("shop", call=("*",)))
    thief = principal("thief", call=("*",))
    bench.client("thief", principal=thief)
    call_id = SHOP + bytes(7) + b"\x01"
    bench.request("c", 1, call_id=call_id)
    bench.final("w")
    for number in range(1, 10_000):
        bench.request("thief", number, call_id=number.to_bytes(8, "big") + bytes(8))
        bench.final("w")
    bench.request("thief", 10_000, call_id=call_id)
    assert bench.requests("w")[-1].call_id != call_id
    assert len(bench.broker.authorizer._origin_owners) == 4096 + 1


def test_peers_without_names_share_their_call_ids() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    call_id = SHOP + bytes(8)
    for peer in ("c", "d"):
        bench.request(peer, 1, call_id=call_id)
    assert [each.call_id for each in bench.requests("w")] == [call_id, call_id]


# --- what a client may know -----------------------------------------------------------------------
@requirement("mdp03:mmi-service-denied")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_a_client_does_not_learn_whether_a_service_that_it_may_not_call_has_workers(
    version: str,
) -> None:
    bench = BrokerBench()
    bench.worker("w", b"pay")
    bench.client("c", version, principal("shop", call=("price", "jobs/*")))
    names = b"pay", b"absent", b"price", b"jobs/!managers"
    for number, name in enumerate(names, start=1):
        bench.request("c", number, name, service=b"mmi.service")
    bodies = [final.body for final in bench.finals("c")]
    assert bodies == [[b"403"], [b"403"], [b"404"], [b"404"]]


# --- changes --------------------------------------------------------------------------------------
@requirement("mdp03:rights-changed")
def test_a_worker_that_has_lost_its_right_is_disconnected_and_its_requests_go_on() -> None:
    bench = BrokerBench()
    revoked, kept = principal("a", serve=("echo",)), principal("b", serve=("echo",))
    bench.worker("w", principal=revoked)
    bench.request("c", 1)
    bench.worker("v", principal=kept)
    revoked.grant(Rights(), Quota())
    bench.feed(RightsChanged())
    assert "no right to serve" in bench.disconnected["w"]
    assert bench.causes["w"] is Cause.DENIED
    bench.final("v")
    assert [final.status for final in bench.finals("c")] == [0]


@requirement("mdp03:rights-changed")
def test_pending_requests_without_the_right_end_and_others_go_on() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    shop, other = principal("shop", call=("*",)), principal("other", call=("*",))
    bench.client("c", principal=shop)
    bench.client("d", principal=other)
    bench.request("c", 1)
    bench.request("d", 2)
    bench.request("c", 3, service=b"absent")
    shop.grant(Rights(call=("price",)), Quota())
    bench.feed(RightsChanged())
    finals: list[ClientFinal] = bench.finals("c")
    assert [(each.request_id, each.status, each.attempts) for each in finals] == [
        (1, Status.DENIED, 1),
        (3, Status.DENIED, 0),
    ]
    assert isinstance(bench.sent("w")[-1], WorkerCancel)
    bench.final("w", nth=1)
    assert [final.status for final in bench.finals("d")] == [0]
    bench.request("c", 4)
    assert bench.finals("c")[-1].status == Status.DENIED


@requirement("mdp03:rights-changed")
def test_workers_that_lose_their_right_together_do_not_get_each_others_requests() -> None:
    bench = BrokerBench(attempts_max=2)
    owner = principal(serve=("echo",))
    for worker in ("w1", "w2", "w3"):
        bench.worker(worker, principal=owner)
    bench.request("c", 1)
    owner.revoke()
    bench.feed(RightsChanged())
    bench.worker("w4")
    bench.final("w4")
    assert [(final.status, final.attempts) for final in bench.finals("c")] == [(Status.OK, 2)]


def test_no_request_goes_to_a_worker_that_is_about_to_be_disconnected() -> None:
    bench = BrokerBench()
    pay = principal("pay-worker", serve=("echo",))
    bench.worker("w", principal=pay)
    bench.worker("v", principal=pay)
    bench.request("c", 1)
    pay.grant(Rights(), Quota())
    bench.feed(RightsChanged())
    assert [len(bench.requests(worker)) for worker in ("w", "v")] == [1, 0]
    assert bench.disconnected.keys() == {"w", "v"}
    assert bench.finals("c") == []
    bench.worker("u")
    assert [each.attempt for each in bench.requests("u")] == [2]


@requirement("mdp03:rights-changed")
def test_no_request_of_a_client_that_has_lost_the_right_goes_to_a_worker() -> None:
    bench = BrokerBench()
    shop, pay = principal("shop", call=("echo",)), principal("pay", serve=("echo",))
    bench.client("c", principal=shop)
    bench.worker("w", principal=pay)
    bench.request("c", 1)
    bench.worker("v")
    for each in (shop, pay):
        each.grant(Rights(), Quota())
    bench.feed(RightsChanged())
    assert [final.status for final in bench.finals("c")] == [Status.DENIED]
    assert bench.requests("v") == []
    assert "w" in bench.disconnected
    assert "v" not in bench.disconnected
