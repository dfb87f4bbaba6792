"""From a broker with an access file to the table of decisions, the principals and the report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.e2e.cluster import until
from tests.spark.events import collect

import requite
from requite.access.passwords import hash_password
from requite.errors import CallTimeout, Denied
from requite.spark import runner
from requite.spark.lake import Lake
from requite.spark.runner import RunSummary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PASSWORDS: Final = {user: f"the-secret-of-{user}" for user in ("shop", "ops", "worker")}
HASHES: Final = {user: hash_password(password) for user, password in PASSWORDS.items()}
WRONG: Final = "a-guessed-secret"
SERVICES: Final = ("echo", "price")
RIGHTS: Final = {
    "shop": 'call = ["echo"]',
    "ops": 'call = ["*"]\nadmin = ["stats"]',
    "worker": 'serve = ["echo", "price"]',
}
CALLS: Final = 5


class Audited(NamedTuple):
    """The journal of a broker with an access file, its lake and its report."""

    folder: Path
    summary: RunSummary
    lake: Lake

    def rows(self, table: str) -> list[dict[str, Any]]:
        return collect(self.lake.table(table))

    @property
    def page(self) -> str:
        return (self.folder / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    folder = tmp_path_factory.mktemp("access")
    asyncio.run(traffic(folder))
    lake = folder / "lake"
    summary = runner.run(spark, folder / "journal", lake, report=folder / "report.html")
    return Audited(folder, summary, Lake.at(spark, lake))


def write_access(path: Path, **rights: str) -> None:
    tables = (
        f'[user.{user}]\npassword = "{hashed}"\n{rights.get(user, RIGHTS[user])}\n'
        for user, hashed in HASHES.items()
    )
    path.touch(0o600)
    path.write_text("\n".join(tables), encoding="utf-8")


async def traffic(folder: Path) -> None:
    """Make calls that are admitted and calls that are denied, change a right, and guess."""
    access = folder / "access.toml"
    write_access(access)
    journal = folder / "journal"
    async with requite.Broker("tcp://127.0.0.1:0", access=access, journal=journal) as broker:
        place = broker.endpoints[0].removeprefix("tcp://")

        def url(user: str, password: str = "") -> str:
            return f"mdp://{user}:{password or PASSWORDS[user]}@{place}"

        @requite.service("echo")
        async def echo(request: requite.Request) -> bytes:
            return request.body

        @requite.service("price")
        async def price(request: requite.Request) -> bytes:
            return request.body

        async with (
            requite.Worker(url("worker"), echo, price),
            requite.AsyncClient(url("shop"), journal=journal) as shop,
            requite.AsyncClient(url("ops")) as ops,
        ):
            await until(lambda: len(broker.snapshot().workers) == len(SERVICES))
            for _ in range(CALLS):
                await shop.call(b"x", service="echo")
                await ops.call(b"x", service="price")
            for _ in range(3):
                with pytest.raises(Denied, match="no right to call 'price'"):
                    await shop.call(b"x", service="price")
            write_access(access, shop='call = ["echo", "price"]')
            await broker.read_access()
            await shop.call(b"x", service="price")
        with pytest.raises(CallTimeout):
            async with requite.AsyncClient(url("shop", WRONG)) as guesser:
                await guesser.call(b"x", service="echo", timeout=1.0)


def test_every_decision_is_in_the_table(audited: Audited) -> None:
    rows = audited.rows("silver_access")
    decided = Counter(
        (row["principal"], row["verb"], row["object"], row["verdict"]) for row in rows
    )
    assert decided["shop", "call", "price", "denied"] == 3
    assert decided["shop", "rights", None, "changed"] == 1
    for name in SERVICES:
        assert decided["worker", "serve", name, "admitted"] == 1
    for user in PASSWORDS:
        assert decided[user, "connect", None, "admitted"] >= 1
    guesses = [row for row in rows if row["principal"] == "plain:shop"]
    assert guesses
    assert {(row["verb"], row["verdict"]) for row in guesses} == {("connect", "denied")}
    connected = [row for row in rows if row["verb"] == "connect"]
    assert all(row["peer"].startswith("tcp://127.0.0.1:") for row in connected)
    owned = [row for row in rows if row["verb"] == "call id"]
    clients = {row["client"] for row in audited.rows("silver_requests")}
    assert {row["object"] for row in owned} <= clients


def test_each_request_has_its_user(audited: Audited) -> None:
    """A denied request is a row, too, which was never accepted."""
    requests = audited.rows("silver_requests")
    accepted = Counter((row["principal"], row["service"]) for row in requests if row["accepted_at"])
    assert accepted["shop", "echo"] == CALLS
    assert accepted["ops", "price"] == CALLS
    assert accepted["shop", "price"] >= 1
    assert {row["principal"] for row in requests} == {"shop", "ops"}


def test_denied_calls_and_guesses_leave_the_audit_as_it_is(audited: Audited) -> None:
    audit = audited.summary.audit
    assert audit.ok
    assert audit.complete
    assert audit.accepted >= 2 * CALLS + 1
    assert audited.summary.quarantined == 0


def test_the_report_has_a_section_on_access(audited: Audited) -> None:
    page = audited.page
    for phrase in (
        '<section id="access">',
        "1 change of rights",
        "shop has no right to call &#39;price&#39;",
        "Refused passwords by address and hour",
        "127.0.0.1",
        "Requests by user",
    ):
        assert phrase in page, phrase


def test_no_file_has_a_password(audited: Audited) -> None:
    """Neither the journal, the lake nor the report; the access file has hashes only."""
    secrets = [secret.encode() for secret in (*PASSWORDS.values(), WRONG)]
    files = list(files_in(audited.folder))
    assert {file.suffix for file in files} >= {".seg", ".parquet", ".json", ".html", ".toml"}
    for file in files:
        content = file.read_bytes()
        assert not any(secret in content for secret in secrets), file
    for name in ("bronze_events", "silver_access", "silver_requests", "bronze_quarantine"):
        text = repr(audited.rows(name))
        assert not any(secret.decode() in text for secret in secrets), name
        assert not any(secret.hex() in text for secret in secrets), name


def files_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
