"""The parts of the demo on which its verdict depends."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from types import SimpleNamespace
from typing import Protocol

import airportsdata
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.typed.shop import served

from requite.cli.show.demos import DEMOS, find_demo
from requite.cli.show.description import Fault
from requite.cli.show.direct import direct_answers
from requite.cli.show.options import Scale
from requite.cli.show.replies import Replies
from requite.cli.show.requests import RequestSource
from requite.cli.show.schedule import inject, milestones, order
from requite.errors import BadRequest, CallTimeout
from requite.examples import airports, questions, tree, typed
from requite.request import Reply
from requite.speaks.registry import carries, read_endpoints
from requite.typed import raises
from requite.typed.codec import JSON
from requite.typed.envelope import wrap_refusal, wrap_reply, wrap_request

AIRPORTS = airportsdata.load()
# Near the poles and the date line, on remote islands, in dense regions, and at equal places.
PLACES = ("NZSP", "NFTL", "EDDF", "KJFK", "SCIP", "UHMA", "EBBR", "EBMB", "LOWI", "FSIA")


def by_brute_force(code: str, count: int) -> list[tuple[int, str]]:
    """Return the nearest airports by an exhaustive search.

    Distances are in whole metres, by Vincenty's formula on a sphere.
    """
    here = AIRPORTS[code]
    lat, lon = math.radians(here["lat"]), math.radians(here["lon"])

    def metres(row):
        phi, theta = math.radians(row["lat"]), math.radians(row["lon"])
        y = math.hypot(
            math.cos(phi) * math.sin(theta - lon),
            math.cos(lat) * math.sin(phi) - math.sin(lat) * math.cos(phi) * math.cos(theta - lon),
        )
        x = math.sin(lat) * math.sin(phi) + math.cos(lat) * math.cos(phi) * math.cos(theta - lon)
        return round(6_371_008.8 * math.atan2(y, x))

    return sorted((metres(row), other) for other, row in AIRPORTS.items() if other != code)[:count]


@pytest.mark.parametrize("code", PLACES)
def test_service_direct_computation_and_brute_force_agree(code):
    expected = by_brute_force(code, 7)
    assert direct_answers(7, [code]) == {code: tuple(expected)}
    assert tree.nearest_to(airports.WORLD.points[code], airports.WORLD.tree, 7) == expected


@given(
    st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=2, max_size=60),
    st.integers(1, 12),
)
def test_the_tree_agrees_with_an_exhaustive_search(places, count):
    points = [tree.point(f"{n:02}", *place) for n, place in enumerate(places)]
    centre = points[0]

    def metres(other):
        chord = math.dist(centre[:3], other[:3])
        diameter = 2 * tree.EARTH_RADIUS_M
        return round(diameter * math.asin(min(1.0, chord / diameter)))

    others = sorted((metres(other), other[3]) for other in points[1:])
    assert tree.nearest_to(centre, tree.build(points), count) == others[:count]


# --- the verdict ----------------------------------------------------------------------------------
TRUTH = {"A": ((1, "B"), (2, "C")), "B": ((1, "A"), (9, "C"))}


def reply(reference: int, *rows: tuple[int, str], attempts: int = 1) -> Reply:
    nearest = [{"metres": metres, "icao": code} for metres, code in rows]
    body = json.dumps({"reference": str(reference), "nearest": nearest}).encode()
    return Reply([body], attempts=attempts, elapsed=0.01)


def judge(*outcomes, asked=("A", "B")):
    replies = Replies(asked)
    for outcome in outcomes:
        replies.add(outcome)
    return replies.judge(TRUTH, took_s=1.0, retries=0, kills=(0, 0))


def numbers(verdict):
    return verdict.answered, verdict.correct, verdict.lost, verdict.duplicated


def test_all_answered_once_and_correctly_is_good():
    verdict = judge(reply(1, *TRUTH["B"]), reply(0, *TRUTH["A"]))
    assert numbers(verdict) == (2, 2, 0, 0)
    assert verdict.is_good


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([reply(0, *TRUTH["A"])], (1, 1, 1, 0)),
        ([reply(0, *TRUTH["A"]), CallTimeout("late")], (1, 1, 1, 0)),
        ([reply(0, *TRUTH["A"]), reply(1, (1, "A"), (8, "C"))], (2, 1, 0, 0)),
        ([reply(0, *TRUTH["A"]), reply(1, (9, "C"), (1, "A"))], (2, 1, 0, 0)),
        ([reply(0, *TRUTH["A"]), reply(1, *TRUTH["B"][:1])], (2, 1, 0, 0)),
        ([reply(0, *TRUTH["A"]), reply(1, *TRUTH["B"]), reply(1, *TRUTH["B"])], (2, 1, 0, 1)),
        ([reply(0, *TRUTH["A"]), reply(0, *TRUTH["A"])], (1, 0, 1, 1)),  # twice for A
    ],
)
def test_any_other_outcome_is_not_good(outcomes, expected):
    verdict = judge(*outcomes)
    assert numbers(verdict) == expected
    assert not verdict.is_good


def test_attempts_beyond_the_first_count_as_sent_again():
    replies = Replies(["A", "B"])
    replies.add(reply(0, attempts=3))
    replies.add(CallTimeout("late", attempts=2))
    assert (replies.sent_again, replies.done) == (3, 2)


def test_answers_in_envelopes_are_opened():
    replies = Replies(["A", "B"], are_in_envelopes=True)
    replies.add(Reply([wrap_reply(reply(0, *TRUTH["A"]).body)], attempts=1, elapsed=0.01))
    replies.add(Reply([wrap_refusal(b"ValueError: no")], attempts=1, elapsed=0.01))
    verdict = replies.judge(TRUTH, took_s=1.0, retries=0, kills=(0, 0))
    assert numbers(verdict) == (1, 1, 1, 1)


# --- the typed service ----------------------------------------------------------------------------
@pytest.mark.parametrize("pattern", [name for name in DEMOS if name != "pool"])
async def test_the_demo_asks_a_typed_service_over_each_protocol(pattern, tmp_path):
    """What a client of the demo sends is what a bound client would send."""
    demo = DEMOS[pattern]
    scale = Scale(requests=3, workers=2)
    with demo.run(demo, scale, None) as run:
        body = run.body(1)
        sent = JSON.encode(questions.Question(run.replies.airports[1], 5, "1"))
        names = carries(read_endpoints(run.url, ()), None).names
        assert body == (sent if names else wrap_request("airports.nearest", sent))


async def test_the_typed_service_answers_as_the_one_of_bytes_does():
    class Airports(Protocol):
        @raises(questions.UnknownAirport)
        async def nearest(self, question: questions.Question) -> questions.Neighbours: ...

    async with served(typed.airports, airports.nearest) as client:
        bound = client.bind(Airports, "airports")
        answer = await bound.nearest(questions.Question("fra", 3, "x"))
        plain = await client.call(b"FRA 3 x", service="nearest")
        assert json.loads(JSON.encode(answer)) == json.loads(plain.body)
        with pytest.raises(questions.UnknownAirport, match="no airport has the code 'NONE'"):
            await bound.nearest(questions.Question("NONE"))
        for count in (0, 101):
            with pytest.raises(BadRequest, match="count"):
                await bound.nearest(questions.Question("FRA", count))


# --- requests and faults --------------------------------------------------------------------------
async def test_requests_are_held_back_until_they_are_released():
    source = RequestSource(5)
    taken = []

    async def take_all():
        while (number := await source.take()) is not None:
            taken.append(number)

    task = asyncio.create_task(take_all())
    source.release(2)
    await source.reached(2)
    await asyncio.sleep(0)
    assert taken == [0, 1]
    source.release(5)
    await task
    assert taken == [0, 1, 2, 3, 4]
    assert source.handed_out == 5


async def test_every_fault_is_injected_while_requests_remain():
    source = RequestSource(1000)
    struck = []

    async def fault():
        struck.append(source.handed_out)

    async def take_all():
        for _ in range(1000):
            assert await source.take() is not None
            await asyncio.sleep(0)  # let the faults run
        assert await source.take() is None

    async with asyncio.TaskGroup() as group:
        group.create_task(inject([fault] * 6, source))
        group.create_task(take_all())
    assert struck == sorted(struck)
    assert all(at <= when < 1000 for at, when in zip(milestones(6, 1000), struck, strict=True))


async def test_without_faults_all_requests_are_released():
    source = RequestSource(3)
    await inject([], source)
    assert [await source.take() for _ in range(4)] == [0, 1, 2, None]


def test_kinds_of_faults_are_mixed():
    faults = [
        Fault("worker_kills", ("worker",)),
        Fault("broker_kills", ("settle", "broker")),
        Fault("stops", ("stop",)),
        Fault(None, ("sleep", "wake")),
    ]
    amounts = SimpleNamespace(worker_kills=4, broker_kills=2, stops=1)
    actions = order(faults, amounts)
    assert Counter(actions) == {
        "worker": 4, "broker": 2, "settle": 2, "stop": 1, "sleep": 1, "wake": 1,
    }  # fmt: skip
    assert actions[0] == "worker"
    assert "broker" in actions[:4]
    assert "broker" in actions[6:]
    assert all(actions[n + 1] == "broker" for n, each in enumerate(actions) if each == "settle")
    assert actions[actions.index("sleep") + 1] == "wake"
    nothing = SimpleNamespace(worker_kills=0, broker_kills=0, stops=0)
    assert order(faults, nothing) == ["sleep", "wake"]


def test_milestones_leave_requests_before_and_after():
    assert 0 < milestones(7, 700)[0] < milestones(7, 700)[-1] < 700


@pytest.mark.parametrize("name", [name for name in DEMOS if name != "pool"])
def test_the_processes_of_a_demo_use_the_same_addresses(name):
    """Processes and clients connect to addresses at which another process listens."""
    demo = DEMOS[name]
    with demo.run(demo, Scale(workers=3), None) as run:
        commands = [(start.args[0], start.args[1][2:]) for start in run._starters]
    bound, connected = set(), set(re.findall(r"127\.0\.0\.1:\d+", run.url))
    for _, words in commands:
        for word in words:
            places = re.findall(r"127\.0\.0\.1:\d+", word)
            is_bound = word.startswith(("--bind", "--pair-bind", "--front", "--back"))
            (bound if is_bound else connected).update(places)
    assert connected == bound
    assert len({name for name, _ in commands}) == len(commands)
    assert not [word for _, words in commands for word in words if "{" in word]


@pytest.mark.parametrize("name", [*DEMOS, *(name.upper() for name in DEMOS)])
def test_a_pattern_is_found_by_its_name(name):
    assert find_demo(name) == name.lower()
    assert find_demo(name.replace("-", " ")) == find_demo(name.replace("-", "_"))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("freelance", "freelance-agent"),
        ("Paranoid", "paranoid-pirate"),
        ("BinaryStar", "binary-star"),
    ],
)
def test_a_pattern_is_found_by_a_part_of_its_name(name, pattern):
    assert find_demo(name) == pattern


def test_an_unknown_pattern_is_refused_with_a_list():
    with pytest.raises(
        ValueError, match=r"unknown pattern 'saga'; the patterns are lazy-pirate, .*agent"
    ):
        find_demo("saga")
