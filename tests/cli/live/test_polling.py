"""How a broker is asked: what answers mean, and what they may cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from math import isnan
from typing import Any

import pytest
from tests.cli.live.readings import read
from tests.support.broker import BrokerBench

from requite.cli.live.notices import Notices
from requite.cli.live.polling import Poller, Seen, Trouble
from requite.errors import CallTimeout, Denied, RemoteViolation
from requite.protocols.majordomo.reading import Reading, to_json
from requite.request import Reply
from requite.shell import clock

URL = "mdp://127.0.0.1:5555"
NESTED = b"[" * 200_000
STATS = json.dumps({"services": [], "clients": 1}).encode()


class Asked:
    """A client whose broker answers as told. An answer takes `cost_s` of a clock of its own."""

    def __init__(self, **answers: bytes) -> None:
        self.answers = {"ping": b"{}", "workers": b"[]", "stats": STATS, **answers}
        self.cost_s = {"ping": 0.25}
        self.now = 0.0
        self.asked: list[str] = []
        self.outstanding = 0
        self.fails = False

    async def call(self, body: bytes, *, service: str) -> Reply:
        name = service.removeprefix("mmi.")
        self.outstanding += 1
        assert self.outstanding == 1
        await asyncio.sleep(0)
        self.outstanding -= 1
        self.asked.append(name)
        self.now += self.cost_s.get(name, 0.25)
        if self.fails:
            raise CallTimeout("no reply", may_have_executed=True, attempts=1)
        return Reply((self.answers[name],))

    async def until_refused(self) -> str:
        await asyncio.Event().wait()
        return ""


MakePoller = Callable[[Asked], Poller]


@pytest.fixture
def poller(monkeypatch: pytest.MonkeyPatch) -> MakePoller:
    """A function that makes a poller, whose clock is that of its client."""

    def make(client: Any) -> Poller:
        monkeypatch.setattr(clock, "now", lambda: client.now)
        return Poller(client, URL, 1.0)

    return make


def census(bench: BrokerBench, **changes: Any) -> bytes:
    return to_json(read(bench)._replace(**changes))


async def test_the_second_answer_has_rates(poller: MakePoller) -> None:
    bench = BrokerBench()
    client = Asked(census=census(bench))
    asking = poller(client)
    first = await asking.look()
    assert isnan(first.figures.happened.accepted)
    bench.now += 2
    client.answers["census"] = census(bench)
    second = await asking.look()
    assert (second.figures.interval_s, second.figures.happened.accepted) == (2, 0)
    assert (first.is_other, second.is_other, second.workers) == (False, False, None)


async def test_another_broker_begins_anew(poller: MakePoller) -> None:
    bench = BrokerBench()
    client = Asked(census=census(bench))
    asking = poller(client)
    await asking.look()
    client.answers["census"] = census(bench, broker="other", at=bench.now + 5)
    seen = await asking.look()
    assert seen.is_other
    assert isnan(seen.figures.happened.accepted)


@pytest.mark.parametrize(
    ("answers", "error", "expected"),
    [
        ({"census": b"501"}, RemoteViolation, "older requite"),
        ({"census": b"501", "stats": b"501"}, RemoteViolation, "not a requite broker"),
        ({"census": b"403"}, Denied, "`admin` of `stats`"),
        ({"census": b"hello"}, RemoteViolation, "cannot be read"),
        ({"census": b"{}"}, RemoteViolation, "cannot be read"),
        ({"census": NESTED}, RemoteViolation, "cannot be read .it is nested too deeply"),
        ({"census": b"501", "stats": NESTED}, RemoteViolation, "not a requite broker"),
    ],
)
async def test_brokers_that_cannot_answer(
    poller: MakePoller, answers: dict[str, bytes], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        await poller(Asked(**answers)).look()


@pytest.mark.parametrize("answer", [b"501", b"{", b'[{"worker": 1}]', b"[1]", NESTED])
async def test_workers_that_cannot_be_read_are_an_error(poller: MakePoller, answer: bytes) -> None:
    asking = poller(Asked(census=census(BrokerBench()), workers=answer))
    asking.service = "echo"
    with pytest.raises(RemoteViolation, match=r"mmi\.workers cannot be read"):
        await asking.look()


@pytest.mark.parametrize(
    ("cost_s", "pause_s"), [(0.25, 1.0), (0.1, 1.0), (0.26, 1.0), (0.35, 5.0), (1.25, 50.0)]
)
async def test_answers_take_a_fiftieth_of_the_time_at_most(
    poller: MakePoller, cost_s: float, pause_s: float
) -> None:
    """The time of a ping does not count: it is not spent on the answer."""
    client = Asked(census=census(BrokerBench()))
    client.cost_s["census"] = cost_s
    asking = poller(client)
    seen = await asking.look()
    assert client.asked == ["ping", "census"]
    assert seen.took_s == pytest.approx(max(0, cost_s - 0.25))
    assert asking.pause_s == pytest.approx(pause_s)
    assert asking.is_slowed is (pause_s > 1.0)


async def test_workers_are_asked_for_only_if_wanted_and_cost_too(poller: MakePoller) -> None:
    client = Asked(census=census(BrokerBench()))
    asking = poller(client)
    asking.service = "echo"
    seen = await asking.look()
    assert client.asked == ["ping", "census", "workers"]
    assert (seen.took_s, asking.pause_s, seen.workers) == (0.25, 12.5, [])


async def test_troubles_are_yielded_and_asking_goes_on(
    poller: MakePoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(s: float) -> None:
        if s:
            slept.append(s)

    client = Asked(census=census(BrokerBench()))
    client.fails = True
    asking = poller(client)
    asking.interval_s = 0.2
    monkeypatch.setattr("requite.cli.live.polling.asyncio.sleep", sleep)
    updates = asking.updates()
    trouble = await anext(updates)
    assert isinstance(trouble, Trouble)
    assert "no reply; `requite services" in trouble.text
    client.fails = False
    assert isinstance(await anext(updates), Seen)
    assert (slept, asking.asked_at) == ([1.0], None)


# --- notices --------------------------------------------------------------------------------------
def seen(reading: Reading, *, is_other: bool = False) -> Seen:
    from requite.cli.live.polling import first_figures

    return Seen(first_figures(reading), 0.0, is_other, "", None)


def test_a_takeover_is_told_from_a_restart() -> None:
    reading = read(BrokerBench())
    notices = Notices()
    assert "connecting" in notices.cell().text
    notices.answered(seen(reading._replace(pair={"role": "primary"})))
    assert notices.cell().text == ""
    notices.answered(seen(reading._replace(pair={"role": "backup"}), is_other=True))
    assert "the backup of the pair serves now" in notices.cell().text
    notices.answered(seen(reading._replace(pair={"role": "backup"}), is_other=True))
    assert "the broker was restarted" in notices.cell().text
    for _ in range(30):
        notices.answered(seen(reading))
    assert notices.cell().text == ""


def test_silence_and_trouble_are_told_until_the_next_answer() -> None:
    notices, reading = Notices(), read(BrokerBench())
    notices.answered(seen(reading))
    notices.waited(3.2)
    assert (notices.cell().text.split(";")[0], notices.is_lost) == ("no answer for 3 s", False)
    notices.trouble("no connection")
    assert (notices.cell().text, notices.is_lost) == ("no connection; asking again", True)
    notices.answered(seen(reading))
    assert (notices.cell().text, notices.is_lost) == ("", False)
