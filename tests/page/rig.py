"""Brokers with their pages, and workers, as processes; what a visitor gets."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from tests.cli.command import WAIT_S, Running, requite, running, running_worker
from tests.support.live import eventually

from requite.journal.reader import events

HEARTBEAT: Final = ("--heartbeat-interval", "0.2", "--liveness", "4")
_PAGE: Final = re.compile(r"page at (http://127\.0\.0\.1:(\d+))/")


class Shown(NamedTuple):
    """A broker that has a page: its process, the URL of its page, and its own."""

    process: Running
    page: str
    port: int
    url: str


@contextmanager
def shown(*options: str, journal: Path | None = None) -> Iterator[Shown]:
    """Start a broker with a page."""
    if journal is not None:
        options = (*options, "--journal", str(journal))
    if "--bind" not in options:
        options = ("--bind", "tcp://127.0.0.1:0", "--http", ":0", *options)
    with running("broker", *HEARTBEAT, *options) as process:
        assert process.line().startswith("metrics at "), process.end()
        url = process.line().replace("listening on tcp", "mdp")
        found = _PAGE.fullmatch(process.line())
        assert found, process.end()
        yield Shown(process, found[1], int(found[2]), url)


@contextmanager
def serving(broker: Shown, *names: str, journal: Path | None = None) -> Iterator[Running]:
    """Start a worker of services of `requite.examples`."""
    options = () if journal is None else ("--journal", str(journal))
    targets = (f"requite.examples:{name}" for name in names)
    with running_worker(*targets, "--connect", broker.url, *HEARTBEAT, *options) as worker:
        yield worker


def call(broker: Shown, service: str, body: str, *options: str) -> None:
    """Make a call, which may fail."""
    requite("call", f"{broker.url}/{service}", body, *options)


def requests_in(journal: Path, service: str) -> list[str]:
    """Return the IDs of the requests of a service in a journal, the oldest first, once there is
    one."""

    def look() -> list[str]:
        found = (each.request_id for each in events(journal) if each.service == service)
        return list(dict.fromkeys(each for each in found if each))

    return eventually(look, f"requests of {service}")


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    text: str
    headers: Mapping[str, str]


def get(
    broker: Shown,
    path: str,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    body: str | None = None,
) -> Answer:
    """Ask for a page."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=WAIT_S)
    try:
        connection.request(method, path, body, {"Accept": "text/html", **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(), response.headers)
    finally:
        connection.close()


def post(
    broker: Shown, path: str, headers: Mapping[str, str] | None = None, **fields: str
) -> Answer:
    """Send the form of a page."""
    form = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return get(broker, path, form, "POST", urlencode(fields))
