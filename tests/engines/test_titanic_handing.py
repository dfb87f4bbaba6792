"""Stored replies leave a few at a time, however many requests for them arrive at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builds import constant_replaced
from tests.support.titanic_engine import TitanicBench

from requite.engine import Drain, Effect, Finished, Load, Loaded, LoadFailed, Stopped, Wake
from requite.errors import LogCorrupt
from requite.protocols.titanic import handing
from requite.protocols.titanic.inputs import Asked
from requite.protocols.titanic.wire import CLOSE, REPLY

pytestmark = constant_replaced

SIZE = 1000


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "OWNER_SIZE_MAX", 4 * SIZE)
    monkeypatch.setattr(handing, "SIZE_MAX", 10 * SIZE)


class Collectors:
    """A Titanic with a reply of `SIZE` bytes for each owner; the test plays shell and store."""

    def __init__(self, *owners: bytes, **policy: Any) -> None:
        self.bench = TitanicBench(**policy)
        self.tickets: dict[bytes, bytes] = {}
        for owner in owners:
            self.tickets[owner] = self.bench.submitted(b"echo", b"", owner=owner)
            self.bench.reply(self.bench.calls[-1], bytes(SIZE))

    def turn(self, *events: Any) -> list[Effect]:
        return list(self.bench.engine.handle(events, self.bench.now))

    def asks(self, owner: bytes, count: int) -> list[Asked]:
        return [Asked((owner, n), REPLY, [self.tickets[owner]], b"", owner) for n in range(count)]

    def answered(self, effects: list[Effect]) -> list[tuple[bytes, int]]:
        """Return the tokens of the answers, each with the reply."""
        finished = [effect for effect in effects if isinstance(effect, Finished)]
        assert all(effect.frames == (b"200", bytes(SIZE)) for effect in finished)
        return [effect.token for effect in finished]

    @property
    def is_due(self) -> bool:
        at = self.bench.engine.deadline()
        return at is not None and at <= self.bench.now


def test_replies_of_a_turn_are_bounded_per_owner_and_in_all_and_owners_take_turns() -> None:
    titanic = Collectors(b"eve", b"shop", b"ann", b"")
    events = titanic.asks(b"eve", 100)
    for owner in (b"shop", b"ann", b""):
        events += titanic.asks(owner, 3)
    turns = [titanic.answered(titanic.turn(*events))]
    while titanic.is_due:
        turns.append(titanic.answered(titanic.turn(Wake())))
    for turn in turns:
        assert len(turn) <= 10
        assert sum(owner == b"eve" for owner, _ in turn) <= 4
    assert {owner for owner, _ in turns[0]} == {b"eve", b"shop", b"ann"}
    assert [owner for owner, _ in turns[1]].count(b"") == 3
    answers = [token for turn in turns for token in turn]
    for owner, count in ((b"eve", 100), (b"shop", 3), (b"ann", 3), (b"", 3)):
        assert [n for who, n in answers if who == owner] == list(range(count))
    assert len(turns) == 25


def test_replies_that_are_being_read_are_bounded() -> None:
    titanic = Collectors(b"eve", b"shop", cache_bytes_max=0)
    effects = titanic.turn(*titanic.asks(b"eve", 20), *titanic.asks(b"shop", 1))
    answers = []
    loads = [effect for effect in effects if isinstance(effect, Load)]
    assert [load.ticket.owner for load in loads] == [b"eve"] * 4 + [b"shop"]
    assert not titanic.is_due  # nothing more can happen before a reply is read
    while loads:
        load = loads.pop(0)
        records = titanic.bench.records
        effects = titanic.turn(Loaded(load.ticket, records[load.position]))
        answers += titanic.answered(effects)
        while titanic.is_due:
            effects = titanic.turn(Wake())
            loads += [effect for effect in effects if isinstance(effect, Load)]
            assert sum(load.ticket.owner == b"eve" for load in loads) <= 4
    assert [n for owner, n in answers if owner == b"eve"] == list(range(20))
    assert len(answers) == 21


def test_a_reply_that_cannot_be_read_makes_room_for_others() -> None:
    titanic = Collectors(b"eve", cache_bytes_max=0)
    effects = titanic.turn(*titanic.asks(b"eve", 5))
    [first, *_] = [effect for effect in effects if isinstance(effect, Load)]
    titanic.turn(LoadFailed(first.ticket, LogCorrupt("a bit turned round")))
    assert titanic.is_due
    effects = titanic.turn(Wake())  # it is sent again: there is no reply any more
    [answer] = [effect for effect in effects if isinstance(effect, Finished)]
    assert (answer.token, answer.frames) == ((b"eve", 4), (b"300",))


def test_a_request_that_is_closed_while_its_reply_is_waited_for_is_unknown() -> None:
    titanic = Collectors(b"eve")
    assert len(titanic.answered(titanic.turn(*titanic.asks(b"eve", 5)))) == 4
    titanic.bench.ask(CLOSE, titanic.tickets[b"eve"], owner=b"eve")
    [answer] = [effect for effect in titanic.turn(Wake()) if isinstance(effect, Finished)]
    assert answer.token == (b"eve", 4)
    assert answer.frames[0].startswith(b"400 no such request")
    assert not titanic.is_due


def test_a_drain_waits_for_all_replies() -> None:
    titanic = Collectors(b"eve")
    effects = titanic.turn(*titanic.asks(b"eve", 5), Drain())
    assert not any(isinstance(effect, Stopped) for effect in effects)
    effects = titanic.turn(Wake())
    assert titanic.answered(effects) == [(b"eve", 4)]
    assert any(isinstance(effect, Stopped) for effect in effects)
