"""What the page shows: readings that are shared, the last hour, curves and figures."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from math import inf, nan

import httpx
import pytest
from starlette.applications import Starlette

from requite.broker import Broker
from requite.core.durations import BOUNDS_S
from requite.metrics import formats
from requite.metrics.figures import figures_of
from requite.metrics.selection import OTHER
from requite.page import charts, rendering
from requite.page.charts import Curve, Moment, chart, timeline
from requite.page.curves import Curves
from requite.page.history import EVERY_S, History, Sample
from requite.page.home import COLUMNS, Home, HomeView, view_of
from requite.page.page import Page
from requite.page.readings import COST, FRESH_S, BrokerSnapshot, Readings
from requite.page.rendering import age, duration, percentile, service_url, since, size, text
from requite.page.services import Services, ServiceView
from requite.page.streams import Streams
from requite.page.views import VIEWS_MAX, Views
from requite.protocols.majordomo.census import NO_TALLY, Census, Traffic
from requite.protocols.majordomo.parties import Service
from requite.protocols.majordomo.reading import Reading

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def traffic(name: str, number: int, accepted: int = 0, queued: int = 0) -> Traffic:
    tally = (accepted, *NO_TALLY[1:])
    return Traffic(name, number, tally, queued, 0, 0, inf, 1, 0, 0, 0, 0)


def snapshot(at_s: float, *services: Traffic, before: float = 1.0) -> BrokerSnapshot:
    """Return a snapshot of a broker whose services have counted nothing before it."""
    now = Reading(at_s, services, len(services), 9, 1, 1, 0, 0, 0, 0, 1 << 30, {}, {}, False)
    figures = figures_of(now._replace(at=at_s - before, services=()), now)
    assert figures is not None
    return BrokerSnapshot(BEGAN + timedelta(seconds=at_s), "", figures, None, 10)


# --- readings -------------------------------------------------------------------------------------
class Counted(Broker):
    """A broker that counts how often it is read."""

    readings = 0

    def census(self) -> Census:
        self.readings += 1
        return super().census()


async def test_one_reading_is_for_all_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("requite.shell.clock.now", lambda: now)
    broker = Counted("tcp://127.0.0.1:0")
    readings = Readings(broker, 10)
    seen = await asyncio.gather(*(readings.latest() for _ in range(100)))
    assert (broker.readings, len({id(each) for each in seen})) == (1, 1)
    now += FRESH_S / 2
    assert await readings.latest() is seen[0]
    now += FRESH_S
    assert await readings.latest() is not seen[0]
    assert broker.readings == 2
    await readings.close()


async def test_readings_that_take_long_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("requite.shell.clock.now", lambda: now)

    class Slow(Counted):
        def census(self) -> Census:
            nonlocal now
            now += 0.02
            return super().census()

    broker = Slow("tcp://127.0.0.1:0")
    readings = Readings(broker, 10)
    await readings.latest()
    now += COST * 0.02 - 0.01
    await readings.latest()
    assert broker.readings == 1
    now += 0.02
    await readings.latest()
    assert broker.readings == 2


async def test_a_reading_costs_its_own_turns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("requite.shell.clock.now", lambda: now)
    broker = Counted("tcp://127.0.0.1:0")
    readings = Readings(broker, 10)
    reading = asyncio.create_task(readings.latest())
    while not reading.done():
        now += 1.0  # the turns of others
        await asyncio.sleep(0)
    assert readings.took_s == 0.0
    now += FRESH_S
    assert await readings.latest() is not reading.result()


async def test_a_reading_is_reused_for_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("requite.shell.clock.now", lambda: now)

    class Slow(Counted):
        def census(self) -> Census:
            nonlocal now
            now += 3.0
            return super().census()

    readings = Readings(Slow("tcp://127.0.0.1:0"), 10)
    first = await readings.latest()
    now += 4.9
    assert await readings.latest() is first
    now += 0.2
    assert await readings.latest() is not first
    assert await readings.next() is not await readings.next()  # for samples
    reading = asyncio.create_task(readings.next())
    await asyncio.sleep(0)
    await readings.close()
    assert reading.cancelled() or reading.done()


async def test_nobody_looks_and_nothing_is_rendered() -> None:
    broker = Counted("tcp://127.0.0.1:0")
    readings = Readings(broker, 10)
    publishing = asyncio.create_task(Streams(readings, lambda *_: {}).publish_forever())
    for _ in range(100):
        await asyncio.sleep(0)
    assert broker.readings == 0
    publishing.cancel()


async def test_of_many_services_the_busiest_have_rows() -> None:
    broker = Broker("tcp://127.0.0.1:0")
    services = broker._engine._directory.services
    for number in range(1, 1001):
        service = Service(b"s%d" % number, None, number)
        service.counters.accepted = number
        services[service.name] = service
    readings = Readings(broker, 10)
    seen = await readings.latest()
    assert seen.figures.now.services_count == 1000
    table = Home(Curves(History())).parts(seen, HomeView())["services"]
    assert table.count("<tr data-key") == 11
    assert "1,000 services" in table
    assert {f"s{number}" for number in range(991, 1001)} == set(
        re.findall(r"<bdi>(.*?)</bdi>", table)
    )
    assert "<i title" in table
    await readings.close()


# --- the last hour --------------------------------------------------------------------------------
def test_the_last_hour_is_kept() -> None:
    history = History()
    for number in range(500):
        at_s = EVERY_S * number
        names = [traffic("a", 1, 20 * number)]
        names += [traffic("early", 2)] if number < 10 else []
        history.add(snapshot(at_s, *names))
        if number == 20:
            assert len(history.of_service("early")) == 9
    assert len(history.of_broker()) == len(history.of_service("a")) == 360
    assert history.of_service("a")[-1].accepted == 2.0
    assert history.of_service("early") == history.of_service("never") == ()
    assert history._of_services.keys() == {"a"}


def test_a_broker_that_began_anew_has_no_sample_of_the_change() -> None:
    history = History()
    history.add(snapshot(10.0, traffic("a", 1, 100)))
    history.add(snapshot(20.0, traffic("a", 1, 50)))
    assert not history.of_broker()
    history.add(snapshot(30.0, traffic("a", 1, 60)))
    assert [each.accepted for each in history.of_broker()] == [1.0]


# --- curves ---------------------------------------------------------------------------------------
def samples(*points: tuple[float, float]) -> list[Sample]:
    return [
        Sample(BEGAN + timedelta(seconds=at), value, 0, 0, nan, nan, 0, 0.0) for at, value in points
    ]


def drawn(*points: tuple[float, float]) -> charts.Chart:
    curve = Curve("accepted", "first", lambda each: each.accepted)
    return chart("Requests", "", samples(*points), (curve,), formats.rate)


def test_curves_are_drawn_once_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    curves = Curves(history)
    drawn: list[str] = []
    monkeypatch.setattr("requite.page.curves.render", lambda name, _: drawn.append(name) or name)
    for number in range(3):
        history.add(snapshot(EVERY_S * number, traffic("a", 1, 20 * number)))
        for _ in range(3):
            assert curves.of_broker() == curves.of_service("a") == "_charts.html"
    assert len(drawn) == 6


def test_a_curve_is_broken_where_samples_are_missing() -> None:
    seen = drawn((0, 1), (10, 3), (20, nan), (30, 4), (90, 2), (100, 2))
    assert (seen.top_text, seen.minutes) == ("4.0", 5)
    [first, second] = seen.lines[0].runs
    assert len(first.split()) == 3
    assert second.split()[-1] == f"{charts.WIDTH:.1f},60.0"


@pytest.mark.parametrize(("age_s", "minutes"), [(100, 5), (301, 15), (901, 60), (3600, 60)])
def test_the_axis_is_as_long_as_it_must_be(age_s: float, minutes: int) -> None:
    assert drawn((0, 1), (age_s, 1)).minutes == minutes


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (0.00029, 0.0003), (1, 1), (1.01, 1.5), (5, 5), (730, 800), (801, 1000)],
)
def test_the_top_of_a_chart_is_round(value: float, top: float) -> None:
    curve = Curve("accepted", "first", lambda each: each.accepted)
    seen = chart("Requests", "", samples((0, value)), (curve,), repr)
    assert float(seen.top_text) == pytest.approx(top)


def test_a_chart_without_samples_is_empty() -> None:
    assert drawn().lines[0].runs == ()


def test_a_timeline_has_a_lane_for_each_process() -> None:
    seen = timeline(
        [
            Moment(BEGAN, "client 1", "sends it", "first"),
            Moment(BEGAN + timedelta(seconds=1), "broker 2", "accepts it", "second"),
            Moment(BEGAN + timedelta(seconds=2), "client 1", "has the reply", "first"),
        ]
    )
    assert seen is not None
    assert [lane.who for lane in seen.lanes] == ["client 1", "broker 2"]
    [begin, end] = [mark.x for mark in seen.lanes[0].marks]
    assert seen.lanes[1].marks[0].x == pytest.approx((begin + end) / 2)
    assert timeline([]) is None
    assert timeline([Moment(BEGAN, "client 1", "sends it", "first")]) is None


# --- tables and figures ---------------------------------------------------------------------------
def test_services_are_chosen_and_sorted() -> None:
    services = (
        traffic("b", 1, 5),
        traffic("A", 2, 7, queued=3),
        traffic("ab", 3, 1),
        traffic(OTHER, 0, 9),
    )
    seen = snapshot(10.0, *services)
    home = Home(Curves(History()))

    def names(query: dict[str, str]) -> list[str]:
        table = home.parts(seen, view_of(query))["services"]
        return re.findall(r"<bdi>(.*?)</bdi>", table)

    assert names({}) == ["A", "ab", "b"]
    assert names({"sort": "-name"}) == ["b", "ab", "A"]
    assert names({"sort": "rate"}) == ["A", "b", "ab"]
    assert names({"sort": "-rate"}) == ["ab", "b", "A"]
    assert names({"q": "a"}) == ["A", "ab"]
    assert "<i title" in home.parts(seen, HomeView())["services"]
    assert "<i title" not in home.parts(seen, HomeView("a"))["services"]


@pytest.mark.parametrize("column", COLUMNS)
def test_views_survive_their_addresses(column: object) -> None:
    key = getattr(column, "key", "")
    for view in (HomeView("a&b=ü", key), HomeView("", key, is_reversed=True)):
        query = dict(part.split("=") for part in view.query.split("&") if part)
        assert view_of({**query, "q": view.filter}) == view


def test_a_service_that_was_removed_has_no_page() -> None:
    services = Services(Broker("tcp://127.0.0.1:0"), Curves(History()))
    assert services.parts(snapshot(1.0), ServiceView("gone")) is None


def test_a_view_is_rendered_once_for_each_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    views = Views(Home(Curves(History())), Services(Broker("tcp://127.0.0.1:0"), Curves(History())))
    rendered: list[str] = []

    def count(template: str, _values: object) -> str:
        rendered.append(template)
        return ""

    monkeypatch.setattr("requite.page.home.render", count)
    seen = snapshot(1.0, traffic("a", 1))
    first = views.parts(seen, HomeView())
    assert all(views.parts(seen, HomeView()) is first for _ in range(10))
    assert rendered == ["_state.html", "_row.html", "_services.html"]
    for number in range(2 * VIEWS_MAX):
        views.parts(seen, HomeView(f"{number}"))
    assert len(views._rendered) == VIEWS_MAX
    assert views.parts(snapshot(2.0, traffic("a", 1)), HomeView()) is not first
    assert len(views._rendered) == 1
    assert views.parts(seen, ServiceView("none")) is None


async def test_no_visit_compiles_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = rendering._templates
    templates.cache.clear()  # type: ignore[union-attr]
    page = Page(Broker("tcp://127.0.0.1:0"))
    await page.start()

    def compile_(*_: object) -> None:
        raise AssertionError("a template is compiled")

    monkeypatch.setattr(templates, "compile", compile_)
    app = httpx.ASGITransport(Starlette(routes=page.routes))
    async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1") as visitor:
        for path in ("/", "/requests", "/services/none"):
            assert "</html>" in (await visitor.get(path)).text
    await page.close()


def test_figures_are_words() -> None:
    assert (percentile(nan), percentile(BOUNDS_S[-1])) == ("–", "≥30\N{NO-BREAK SPACE}s")
    assert size(1 << 30) == "1.0\N{NO-BREAK SPACE}GiB"
    assert (duration(nan), duration(0), duration(0.25)) == ("–", "–", "250\N{NO-BREAK SPACE}ms")
    assert (age(12.6), since(None), since(-0.5)) == (
        "13\N{NO-BREAK SPACE}s",
        "",
        "\N{MINUS SIGN}500\N{NO-BREAK SPACE}ms",
    )
    assert text("a\nb\u202e" + "c" * 300) == "a\N{REPLACEMENT CHARACTER}b" + (
        "\N{REPLACEMENT CHARACTER}" + "c" * 196 + "…"
    )
    assert service_url("a/../b?") == "/services/a%2F..%2Fb%3F"
    assert service_url("..") == "/services?name=.."
