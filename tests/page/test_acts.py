"""What visitors of the page of a broker do: real brokers, workers and pairs, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import requite
from tests.gateway.test_users import users
from tests.page.rig import Shown, get, post, serving, shown
from tests.support.live import eventually

from requite import Client
from requite.access.tokens import hash_token, new_token
from requite.errors import Cancelled
from requite.journal.reader import events
from requite.page.acting import FORM_SIZE_MAX
from requite.page.acts import ACTS
from requite.testing.processes import free_ports

pytestmark = pytest.mark.e2e

OPS, VIEWER = new_token(), new_token()
ACCESS = f"""
[user.ops]
token = "{hash_token(OPS)}"
admin = ["stats", "pause", "kick"]

[user.viewer]
token = "{hash_token(VIEWER)}"
admin = ["stats"]

[user.anyone]
anonymous = true
call = ["*"]
serve = ["*"]
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Shown]:
    with shown() as broker, serving(broker, "echo"):
        yield broker


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acts") / "journal"


@pytest.fixture(scope="module")
def guarded(journal: Path) -> Iterator[Shown]:
    file = users(journal.parent, ACCESS)
    with shown("--access", str(file), journal=journal) as broker, serving(broker, "echo"):
        yield broker


def acts_in(journal: Path) -> list[str | None]:
    """Return what operators did, in words."""
    found = events(journal)
    return [each.reason for each in found if (each.kind, each.error_class) == ("admitted", "admin")]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def echo(broker: Shown) -> dict[str, Any]:
    """Return the state of the service."""
    found: dict[str, Any] = requite("services", broker.url, "--json").record["services"][0]
    return found


# --- services -------------------------------------------------------------------------------------
def test_a_service_is_paused_purged_and_resumed(broker: Shown) -> None:
    page = get(broker, "/services/echo").text
    for verb in ("pause", "resume", "purge"):
        assert f'href="/acts/{verb}?of=echo"' in page
    question = get(broker, "/acts/pause?of=echo").text
    assert "<h1>Pause echo?</h1>" in question
    assert "Workers get no more requests" in question
    assert not echo(broker)["paused"], "a question changes nothing"

    done = post(broker, "/acts/pause", of="echo")
    assert (done.status, "echo is paused. Requests in its queue: 0." in done.text) == (200, True)
    assert 'href="/services/echo"' in done.text
    assert echo(broker)["paused"]
    with Client(f"{broker.url}/echo", timeout=60) as client, ThreadPoolExecutor() as pool:
        purged = pool.submit(client.call, b"purged")
        eventually(lambda: echo(broker)["queued"] == 1, "the request waits")
        assert "that were cancelled: 1." in post(broker, "/acts/purge", of="echo").text
        with pytest.raises(Cancelled) as failure:
            purged.result()
        assert not failure.value.may_have_executed
        held = pool.submit(client.call, b"held")
        eventually(lambda: echo(broker)["queued"] == 1, "the next request waits")
        assert post(broker, "/acts/pause", of="echo").status == 200, "a second time"
        assert "waited in its queue: 1." in post(broker, "/acts/resume", of="echo").text
        assert held.result().body == b"held"


def test_a_worker_is_disconnected_and_comes_back(broker: Shown) -> None:
    def workers() -> list[str]:
        return [
            each["worker"] for each in requite("services", broker.url, "--json").record["workers"]
        ]

    [before] = workers()
    page = get(broker, "/services/echo").text
    found = re.search(r'class="kick" href="([^"]+)"', page)
    assert found
    assert 'id="workers" class="operated"' in page
    link = unescape(found[1])
    assert "Disconnect the worker" in get(broker, link).text
    worker = link.partition("of=")[2].partition("&")[0]
    done = post(broker, "/acts/kick", of=worker, reason="it is old", **{"from": "echo"})
    assert "Connections that were ended: 1." in done.text
    assert 'href="/services/echo"' in done.text
    eventually(lambda: workers() not in ([], [before]), "it has come back")


def test_acts_at_once_share_a_connection() -> None:
    with shown() as broker, serving(broker, "echo"), ThreadPoolExecutor(8) as pool:
        done = pool.map(lambda _: post(broker, "/acts/pause", of="echo").status, range(8))
        assert list(done) == 8 * [200]


@pytest.mark.parametrize("has_acted", [True, False])
def test_acts_while_a_broker_is_drained(has_acted: bool) -> None:
    with shown() as broker, serving(broker, "echo"), ThreadPoolExecutor() as pool:
        if has_acted:
            assert post(broker, "/acts/pause", of="echo").status == 200
        else:
            requite("admin", "pause", broker.url, "echo")
        with Client(f"{broker.url}/echo", timeout=60) as client:
            waiting = pool.submit(client.call, b"x")
            eventually(lambda: echo(broker)["queued"] == 1, "the request waits")
            requite("admin", "drain", broker.url)
            for _ in range(2):
                again = post(broker, "/acts/drain")
                assert (again.status, "that are pending: 1." in again.text) == (200, True)
            assert "waited in its queue: 1." in post(broker, "/acts/resume", of="echo").text
            assert waiting.result().body == b"x"
            assert broker.process.end()[0] == 0


def test_a_broker_is_drained() -> None:
    with shown() as broker:
        assert 'href="/acts/drain"' in get(broker, "/").text
        assert "still pending" not in get(broker, "/acts/drain").text
        assert "refuses new requests" in post(broker, "/acts/drain").text
        assert broker.process.end()[0] == 0


def epoch_in(question: str) -> str:
    found = re.search(r'name="of" value="(\d+)"', question)
    assert found
    return found[1]


def test_a_pair_is_switched() -> None:
    ends = [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]
    with ExitStack() as stack:
        roles = (("--primary", *ends), ("--backup", *reversed(ends)))
        primary, backup = (
            stack.enter_context(shown(role, "--pair-bind", own, "--peer", other))
            for role, own, other in roles
        )
        with Client(f"{primary.url},{backup.url.removeprefix('mdp://')}/x", timeout=20) as client:
            client.call(b"", service="mmi.ping")  # not a vote; the primary is active without one
        eventually(lambda: "primary, active" in get(primary, "/").text, "the primary is active")
        assert 'href="/acts/switch"' in get(primary, "/").text
        assert post(primary, "/acts/pause", of="none").status == 404, "the active one is asked"
        of = epoch_in(get(primary, "/acts/switch").text)
        for stale in ("", of + "0"):
            refused = post(primary, "/acts/switch", of=stale)
            assert (refused.status, "Nothing was changed" in refused.text) == (409, True)
        refused = post(backup, "/acts/drain")
        assert (refused.status, "This broker stands by" in refused.text) == (409, True)
        with ThreadPoolExecutor() as pool:  # a button that is pressed twice
            twice = list(pool.map(lambda _: post(primary, "/acts/switch", of=of), range(2)))
        assert sorted(each.status for each in twice) == [200, 409]
        assert any("change places" in each.text for each in twice)
        eventually(lambda: "backup, active" in get(backup, "/").text, "the backup is active")
        again = post(primary, "/acts/switch", of=of)
        assert (again.status, "has been switched already" in again.text) == (409, True)
        assert "backup, active" in get(backup, "/").text


def test_a_poisoned_request_is_retried(tmp_path: Path) -> None:
    options = ("--titanic", str(tmp_path / "kept"), "--titanic-attempts", "1")
    journal = tmp_path / "journal"
    with shown(*options, journal=journal) as broker, serving(broker, "fail"):
        assert "Titanic has set no request aside" in get(broker, "/stored").text
        ticket = requite("call", f"{broker.url}/fail", "x", "--submit").out.split()[0]
        eventually(lambda: ticket in get(broker, "/stored").text, "it is poisoned")
        assert (
            'href="/stored"'
            in eventually(
                lambda: [text for text in [get(broker, "/").text] if "/stored" in text],
                "the page of the broker shows it",
            )[0]
        )
        assert f'href="/acts/retry?of={ticket}"' in get(broker, "/stored").text
        assert "Retry the stored request" in get(broker, f"/acts/retry?of={ticket}").text
        done = post(broker, "/acts/retry", of=ticket)
        assert (done.status, "is retried" in done.text) == (200, True)
        eventually(lambda: f"titanic.retry {ticket}" in acts_in(journal), "the journal has it")
        unknown = post(broker, "/acts/retry", of=32 * "0")
        assert (unknown.status, "Titanic refuses it" in unknown.text) == (409, True)


def test_a_broker_without_a_titanic_has_no_stored_requests(broker: Shown) -> None:
    answer = get(broker, "/stored")
    assert (answer.status, "stores no requests" in answer.text) == (404, True)
    assert post(broker, "/acts/retry", of=32 * "0").status == 404


# --- rights ---------------------------------------------------------------------------------------
def test_rights_are_those_of_the_user(guarded: Shown, journal: Path) -> None:
    page = get(guarded, "/services/echo", bearer(VIEWER)).text
    assert "/acts/pause" not in page
    assert 'class="operated"' not in page
    assert get(guarded, "/acts/pause?of=echo", bearer(VIEWER)).status == 403
    denied = post(guarded, "/acts/pause", bearer(VIEWER), of="echo")
    assert denied.status == 403
    assert "viewer has no right to admin 'pause'" in unescape(denied.text)
    retry = post(guarded, "/acts/retry", bearer(VIEWER), of=32 * "0")
    assert retry.status == 404, "this broker has no Titanic"
    metrics = get(guarded, "/metrics").text
    assert 'requite_broker_denied_total{verb="admin"} 1.0' in metrics
    switch = post(guarded, "/acts/switch", bearer(VIEWER))
    assert (switch.status, 'admin = ["switch"]' in unescape(switch.text)) == (403, True)

    page = get(guarded, "/services/echo", bearer(OPS)).text
    assert "/acts/pause?of=echo" in page
    assert "/acts/purge" not in page, "ops may not purge"
    assert post(guarded, "/acts/pause", bearer(OPS), of="echo").status == 200
    assert post(guarded, "/acts/resume", bearer(OPS), of="echo").status == 200

    def decisions() -> set[tuple[str | None, bytes, str | None]]:
        found = [each for each in events(journal) if each.error_class == "admin"]
        return {(each.kind, bytes.fromhex(each.worker or ""), each.service) for each in found}

    wanted = {
        ("denied", b"viewer", "pause"),
        ("denied", b"viewer", "switch"),
        ("admitted", b"ops", "pause"),
    }
    eventually(lambda: wanted <= decisions(), "the journal has them")


def test_nobody_else_may_do_anything(guarded: Shown) -> None:
    assert post(guarded, "/acts/pause", of="echo").status == 403, "an anonymous user without rights"
    assert post(guarded, "/acts/pause", bearer(new_token()), of="echo").status == 401


# --- bad input ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://127.0.0.1:{port}", "Host": "127.0.0.1:{port}"}, 404),
        ({"Origin": "https://127.0.0.1:{port}", "Host": "127.0.0.1:{port}"}, 404),  # a proxy
        ({"Origin": "http://localhost:{port}"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
        ({}, 404),
    ],
)
def test_forms_of_other_pages_are_refused(
    broker: Shown, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.format(port=broker.port) for name, value in headers.items()}
    answer = post(broker, "/acts/kick", sent, of="00")
    assert answer.status == status
    assert len(requite("services", broker.url, "--json").record["workers"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status", "says"),
    [
        ("POST", "/acts/none", "of=echo", "", 404, "There is no such act"),
        ("GET", "/acts/<b>", "", "", 404, "&lt;b&gt;"),
        ("GET", "/acts/pause", "", "", 400, "The form is incomplete"),
        ("POST", "/acts/pause", "", "", 400, "The form is incomplete"),
        ("POST", "/acts/pause", "of=none", "", 404, "It does not exist any more"),
        ("POST", "/acts/kick", "of=ff", "", 404, "It does not exist any more"),
        ("POST", "/acts/pause", "of=%ff%fe", "", 400, "The form is malformed"),
        ("POST", "/acts/pause", "\u00e9", "", 400, "The form is malformed"),
        ("POST", "/acts/pause", "of", "", 400, "The form is malformed"),
        ("POST", "/acts/pause", '{"of":"echo"}', "application/json", 415, "The form is malformed"),
        ("POST", "/acts/pause", "of=" + FORM_SIZE_MAX * "x", "", 413, "The form is malformed"),
        ("PUT", "/acts/pause", "of=echo", "", 405, "Method Not Allowed"),
        ("POST", "/", "of=echo", "", 405, "Method Not Allowed"),
    ],
)
def test_it_says_what_is_wrong(
    broker: Shown, method: str, path: str, body: str, kind: str, status: int, says: str
) -> None:
    headers = {"Content-Type": kind or "application/x-www-form-urlencoded; charset=utf-8"}
    answer = get(broker, path, headers, method, body)
    assert answer.status == status
    assert says in answer.text
    assert not echo(broker)["paused"]


@pytest.mark.parametrize("verb", ACTS)
def test_markup_in_a_name_is_text(broker: Shown, verb: str) -> None:
    query = "?of=%3Cscript%3Ealert(1)%3C/script%3E&from=%22%3E%3Cimg%20src=x%3E"
    for answer in (
        get(broker, f"/acts/{verb}{query}"),
        post(broker, "/acts/kick", of="<script>", **{"from": '"><img src=x>'}),
    ):
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
