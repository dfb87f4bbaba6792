"""Bad input for the page of a broker: it gets a clear answer, and no text is ever code."""

from __future__ import annotations

import asyncio
import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from tests.page.rig import WAIT_S, Shown, call, get, requests_in, serving, shown
from tests.support.live import eventually

from requite import AsyncClient
from requite.broker import Broker
from requite.cli.watching import WatchingServices
from requite.errors import CallTimeout
from requite.journal.reader import events
from requite.journal.settings import SEGMENT_SIZE_MIN, JournalSettings
from requite.metrics.monitor import Monitor
from requite.metrics.process import Process
from requite.metrics.watched import WatchedBroker
from requite.page.page import Page
from requite.story.searcher import Searcher
from requite.titanic.settings import TitanicSettings
from requite.web.place import parse_place

pytestmark = pytest.mark.e2e

UNKNOWN = "0123456789abcdef" * 2
EVIL = "%3Cscript%3Ealert(1)%3C/script%3E"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "journal"


@pytest.fixture(scope="module")
def broker(journal: Path) -> Iterator[Shown]:
    with shown(journal=journal) as broker, serving(broker, "echo", "fail"):
        eventually(lambda: "fail</bdi>" in get(broker, "/").text, "the page has the services")
        yield broker


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/none", 404, "There is no such page"),
        ("/events/", 404, "There is no such page"),
        ("/services/none", 404, "There is no such service"),
        (f"/services/{EVIL}", 404, "There is no such service"),
        ("/services/%ff%fe", 404, "There is no such service"),
        ("/services/" + 10_000 * "x", 404, 200 * "x" + "…"),
        ("/services", 404, "There is no such service"),
        ("/events?service=none", 404, "There is no such service"),
        ("/requests/x", 404, "is not the ID of a request"),
        (f"/requests/{EVIL}", 404, "is not the ID of a request"),
        ("/requests/" + 31 * "0", 404, "is not the ID of a request"),
        ("/requests/" + 32 * "g", 404, "is not the ID of a request"),
        ("/requests/%E2%80%AEfdp", 404, "“<bdi>\N{REPLACEMENT CHARACTER}fdp</bdi>”"),
        ("/requests/%00", 404, "is not the ID of a request"),
        ("/requests/" + 10_000 * "0", 404, "is not the ID of a request"),
        (f"/requests/{UNKNOWN}", 404, "has no event of request"),
        (f"/requests?id={EVIL}", 400, "is not the ID of a request"),
        ("/requests?id=", 400, "is not the ID of a request"),
        ("/requests?failed=1&since=never", 400, "is not a time"),
        (f"/requests?failed=1&since={EVIL}", 400, "since= is one of 1m, 10m, 1h"),
        (f"/?q={EVIL}", 200, "No service that is shown has a name like that"),
        (f"/?sort={EVIL}", 200, "echo"),
        ("/?sort=-", 200, "echo"),
        ("/?q=" + 10_000 * "e", 200, "No service that is shown"),
    ],
)
def test_it_says_what_is_wrong(broker: Shown, path: str, status: int, says: str) -> None:
    answer = get(broker, path)
    assert answer.status == status
    assert says in answer.text
    assert "<script>alert" not in answer.text
    assert len(answer.text) < 20_000
    assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("id_", [UNKNOWN, UNKNOWN.upper(), f"%20{UNKNOWN}%0a"])
def test_an_id_leads_to_its_request(broker: Shown, id_: str) -> None:
    answer = get(broker, f"/requests?id={id_}")
    assert (answer.status, answer.headers["Location"]) == (303, f"/requests/{UNKNOWN}")


@pytest.mark.parametrize("path", ["/", "/events", "/requests", "/services/echo", "/page.js"])
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
def test_foreign_pages_may_not_read_it(broker: Shown, path: str, headers: dict[str, str]) -> None:
    answer = get(broker, path, headers)
    assert (answer.status, "echo" in answer.text) == (403, False)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
@pytest.mark.parametrize(
    ("mode", "dest"),
    [("no-cors", "image"), ("navigate", "document"), ("navigate", "iframe"), ("cors", "empty")],
)
def test_foreign_pages_start_no_work(broker: Shown, site: str, mode: str, dest: str) -> None:
    fields = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    is_foreign = site in ("cross-site", "same-site")
    is_link = (mode, dest) == ("navigate", "document")
    for path in ("/requests?failed=1&since=7d", "/services/echo", "/page.js"):
        answer = get(broker, path, fields)
        assert answer.status == (403 if is_foreign else 200), path
    assert get(broker, "/events", fields, "HEAD").status == (403 if is_foreign else 200)
    for path in ("/", "/metrics"):
        answer = get(broker, path, fields)
        assert answer.status == (403 if is_foreign and not is_link else 200), path


@pytest.mark.parametrize("path", ["/", "/requests", "/page.js", "/none"])
def test_no_other_origin_embeds_it(broker: Shown, path: str) -> None:
    assert get(broker, path).headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", "/requests", "/services/echo", "/events"])
def test_it_is_read_only(broker: Shown, path: str) -> None:
    assert get(broker, path, method="POST").status == 405


def test_programs_get_texts(broker: Shown) -> None:
    answer = get(broker, "/none", {"Accept": "*/*"})
    assert (answer.status, answer.text) == (
        404,
        "Not Found: there are /metrics, /health and /ready\n",
    )


def test_what_a_request_says_is_escaped(broker: Shown, journal: Path) -> None:
    call(broker, "fail", "<script>alert(1)</script>\x1b[31m\u202e")
    request_id = requests_in(journal, "fail")[-1]
    answer = get(broker, f"/requests/{request_id}")
    assert answer.status == 200
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    assert "<script>alert" not in answer.text
    assert not {"\x1b", "\u202e"} & set(answer.text)


def test_without_a_journal_it_says_how_to_get_one() -> None:
    with shown() as broker:
        for path in ("/requests", "/requests?failed=1", f"/requests/{UNKNOWN}"):
            answer = get(broker, path)
            assert answer.status == 404
            assert "requite broker --journal DIR" in answer.text


async def expired(client: AsyncClient, count: int) -> None:
    """Make calls that no worker answers in time."""
    calls = (client.call(b"x", timeout=0.1) for _ in range(count))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, CallTimeout) for each in outcomes)


@pytest.mark.slow
async def test_a_journal_that_rotates_while_it_is_read(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = JournalSettings(
        segment_size_bytes=SEGMENT_SIZE_MIN, retain_bytes=2 * SEGMENT_SIZE_MIN
    )
    searcher = Searcher([journal])
    seen: Counter[int] = Counter()
    async with (
        Broker("tcp://127.0.0.1:0", journal=(journal, settings)) as broker,
        AsyncClient(broker.endpoints[0].replace("tcp", "mdp"), service="nobody") as client,
    ):
        page = Page(broker, named_max=10, searcher=searcher)
        await page.start()
        app = httpx.ASGITransport(Starlette(routes=page.routes))
        async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1") as visitor:
            while not any(each.service == "nobody" for each in events(journal)):
                await expired(client, 100)  # some before they are sent, if the machine is slow
            first = requests_in(journal, "nobody")[0]
            while any(journal.glob(f"broker-*/{0:020}.seg")):
                await expired(client, 500)
                story = await visitor.get(f"/requests/{first}")
                seen[story.status_code] += 1
                assert (await visitor.get("/requests?failed=1")).status_code == 200
            told = await visitor.get(f"/requests/{first}")
            assert (told.status_code, seen.keys() <= {200, 404}) == (404, True)
            assert seen[200] > 0
        await page.close()


async def test_it_waits_for_the_start_of_a_broker(tmp_path: Path) -> None:
    titanic = TitanicSettings(tmp_path / "titanic")
    broker = Broker("tcp://127.0.0.1:0", titanic=titanic)
    monitor = Monitor(
        parse_place(":0"),
        Process("1", "", "broker"),
        WatchedBroker(broker, 10),
        page=Page(broker, named_max=10),
    )
    await monitor.start()
    async with httpx.AsyncClient(base_url=monitor.url) as visitor:
        for path in ("/", "/events", "/services/echo", "/requests"):
            answer = await visitor.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "The broker is starting" in answer.text
        await broker.start()
        await monitor.started()
        answer = await visitor.get("/")
        assert (answer.status_code, "Titanic" in answer.text) == (200, True)
    await monitor.close()
    await broker.close()


def test_head_of_a_stream_leaves_the_connection(broker: Shown) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=WAIT_S)
    with closing(connection):
        for method, path in (("HEAD", "/events"), ("HEAD", "/"), ("GET", "/health")):
            connection.request(method, path)
            response = connection.getresponse()
            assert (response.status, bool(response.read())) == (200, method == "GET")


@pytest.mark.parametrize("host", ["10.0.0.5", "[2001:db8::1]", "broker.example", "0.0.0.0"])
async def test_over_a_network_it_needs_to_be_insecure(host: str) -> None:
    broker = Broker("tcp://127.0.0.1:0")
    for insecure, status in ((False, 403), (True, 200)):
        page = Page(broker, named_max=10, insecure=insecure)
        await page.start()
        app = httpx.ASGITransport(Starlette(routes=page.routes))
        async with httpx.AsyncClient(transport=app, base_url=f"http://{host}:9464") as visitor:
            for path in ("/", "/requests/x"):
                answer = await visitor.get(path)
                assert (answer.status_code == 403) == (status == 403)
                assert ("Only on this machine" in answer.text) == (status == 403)
            assert (await visitor.get("/page.css")).status_code == 200
        await page.close()


@pytest.mark.parametrize(
    ("place", "insecure", "shown_at"),
    [
        (":0", False, "http://127.0.0.1:"),
        ("localhost:0", False, "http://localhost:"),
        ("0.0.0.0:0", False, "http://127.0.0.1:"),
        ("[::]:0", False, "http://[::1]:"),
        ("broker.example:0", False, ""),
        ("10.0.0.5:0", False, ""),
        ("10.0.0.5:0", True, "http://10.0.0.5:"),
    ],
)
async def test_it_is_announced_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, place: str, insecure: bool, shown_at: str
) -> None:
    page = Page(Broker("tcp://127.0.0.1:0"), insecure=insecure)
    watched = WatchedBroker(Broker("tcp://127.0.0.1:0"), 10)
    monitor = Monitor(parse_place(place), Process("1", "", "broker"), watched, page=page)
    assert monitor.page_url == ""
    url = "http://x:9464"  # that of the server, wherever this machine can listen
    monkeypatch.setattr(monitor._server, "url", url)
    assert monitor.page_url == (f"{shown_at}9464/" if shown_at else "")


def test_the_announced_page_of_all_addresses_is_shown() -> None:
    options = ("--bind", "tcp://127.0.0.1:0", "--http", "0.0.0.0:0")
    with shown(*options) as broker:
        assert get(broker, "/").status == 200


def test_without_its_packages_a_broker_has_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.cli.watching.find_spec", lambda _name: None)

    def page() -> None:
        raise AssertionError("it would need the packages")

    watching = WatchingServices(http=":0")
    monitor = watching.monitor("broker", lambda: WatchedBroker(None, 1), page)  # type: ignore[arg-type]
    assert monitor is not None
    assert monitor.page_url == ""
