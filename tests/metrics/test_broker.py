"""`requite broker --http`: metrics, health and readiness of a real process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.command import Running, requite, running, running_worker, write_users
from tests.metrics.scrape import await_value, get, scrape, url_of
from tests.support.live import eventually

from requite import AsyncClient
from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e


@contextmanager
def watched(*options: str) -> Iterator[tuple[Running, str, str]]:
    """Start a broker with metrics; yield the process, and the URLs of its metrics and its own."""
    with running("broker", "--bind", "tcp://127.0.0.1:0", "--http", ":0", *options) as broker:
        url = url_of(broker)
        yield broker, url, broker.line().replace("listening on tcp", "mdp")


@contextmanager
def serving(broker: str, *names: str) -> Iterator[None]:
    with running_worker(*(f"requite.examples:{name}" for name in names), "--connect", broker):
        yield


def test_requests_of_a_service_are_counted() -> None:
    with watched() as (_, url, broker), serving(broker, "echo", "fail"):
        assert requite("call", f"{broker}/echo", "hello").stdout == b"hello"
        assert requite("call", f"{broker}/fail", "why").code == ExitCode.FAILED
        seen = scrape(url)
        assert seen.value("requite_requests_accepted_total", service="echo") == 1
        assert seen.value("requite_requests_ended_total", service="echo", status="ok") == 1
        assert seen.value("requite_requests_ended_total", service="fail", status="failed") == 1
        assert seen.value("requite_request_bytes_total", service="echo") == 5
        assert seen.value("requite_reply_bytes_total", service="echo") == 5
        assert seen.value("requite_request_duration_seconds_count", service="echo") == 1
        assert seen.value("requite_workers", service="echo", state="idle") == 1
        assert seen.value("requite_requests_queued", service="echo") == 0
        assert seen.value("requite_broker_peers", role="worker") == 2
        assert seen.value("requite_broker_pending_bytes_max") == 1 << 30
        assert seen.value("requite_ready") == 1
        assert seen.services() == {"echo", "fail"}


async def test_the_wait_of_queued_requests_is_shown() -> None:
    with watched("--service-grace", "60") as (_, url, broker):
        async with AsyncClient(broker, service="absent") as client:
            calling = asyncio.create_task(client.call(b"x", timeout=60))
            unserved = ("requite_requests_unserved",)
            seen = await asyncio.to_thread(await_value, url, 1.0, *unserved, service="other")
            assert seen.value("requite_requests_queued", service="other") == 1
            assert (seen.value("requite_oldest_queued_seconds", service="other") or 0) > 0
            assert seen.services() == {"other"}
            assert (seen.value("requite_broker_pending_bytes") or 0) > 1024
            calling.cancel()
            await asyncio.wait((calling,))
        seen = await_value(url, 1.0, "requite_requests_ended_total", service="other",
                           status="cancelled")  # fmt: skip
        assert seen.services() == {"other"}


def test_health_and_readiness() -> None:
    with watched() as (broker, url, address), serving(address, "slow"):
        assert get(url, "/health").said == {"healthy": True}
        assert (get(url, "/ready").status, get(url, "/ready").said) == (
            200,
            {"ready": True, "flaw": ""},
        )
        with running("call", f"{address}/slow", "60", "--timeout", "60"):
            await_value(url, 1.0, "requite_requests_in_progress", service="slow")
            broker.send(signal.SIGTERM)
            eventually(lambda: get(url, "/ready").status == 503, "not ready")
            assert get(url, "/ready").said == {"ready": False, "flaw": "it is being drained"}
            assert get(url, "/health").status == 200
            await_value(url, 0.0, "requite_ready")
            broker.send(signal.SIGTERM)
            assert broker.end()[0] == ExitCode.STOPPED


def test_one_service_in_detail() -> None:
    with watched("--metrics-services", "1") as (_, url, broker), serving(broker, "echo", "fail"):
        for _ in range(2):
            assert requite("call", f"{broker}/echo", "x").code == 0
        assert requite("call", f"{broker}/fail", "x").code == ExitCode.FAILED
        assert scrape(url).services() == {"echo", "other"}
        detailed = scrape(url, "/metrics/detailed?service=fail")
        assert detailed.services() == {"fail"}
        assert detailed.value("requite_requests_ended_total", service="fail", status="failed") == 1
        assert get(url, "/metrics/detailed?service=x%0Ay").status == 404
        assert get(url, "/metrics/detailed").status == 400


def test_rates_stay_true_when_another_service_becomes_the_busiest() -> None:
    with watched("--metrics-services", "1") as (_, url, broker), serving(broker, "echo", "fail"):
        requite("call", f"{broker}/echo", "x")
        name = "requite_requests_accepted_total"
        assert scrape(url).value(name, service="echo") == 1
        for _ in range(3):
            requite("call", f"{broker}/fail", "x")
        seen = await_value(url, 3.0, name, service="other")
        assert seen.services() == {"fail", "other"}
        assert seen.value(name, service="fail") == 0
        requite("call", f"{broker}/fail", "x")
        seen = await_value(url, 1.0, name, service="fail")
        assert seen.value(name, service="other") == 3


def test_denied_requests_are_counted(tmp_path: Path) -> None:
    access = write_users(
        tmp_path / "access.toml", '[user.any]\nanonymous = true\ncall = ["echo"]\n'
    )
    with watched("--access", str(access)) as (_, url, broker):
        assert requite("call", f"{broker}/secret", "x", "--timeout", "5").code != 0
        seen = scrape(url)
        assert seen.value("requite_broker_denied_total", verb="call") == 1
        assert seen.value("requite_broker_refused_total", status="denied") == 1


def test_a_scrape_in_the_middle_of_reloads(tmp_path: Path) -> None:
    access = write_users(tmp_path / "access.toml", '[user.any]\nanonymous = true\ncall = ["*"]\n')
    with watched("--access", str(access)) as (broker, url, _):
        for _ in range(20):
            broker.send(signal.SIGHUP)
            assert scrape(url).value("requite_ready") == 1


def test_a_broker_with_titanic(tmp_path: Path) -> None:
    with watched("--titanic", str(tmp_path / "requests")) as (_, url, broker):
        assert requite("call", f"{broker}/absent", "x", "--submit").code == 0
        seen = await_value(url, 1.0, "requite_titanic_requests", state="waiting")
        assert (seen.value("requite_titanic_store_bytes") or 0) > 0
        assert seen.value("requite_titanic_store_failed") == 0
        assert get(url, "/ready").status == 200


def test_a_pair(tmp_path: Path) -> None:
    ends = [f"ipc://{tmp_path}/{name}" for name in ("a", "b")]
    with (
        watched("--primary", "--pair-bind", ends[0], "--peer", ends[1]) as (_, one, _url),
        watched("--backup", "--pair-bind", ends[1], "--peer", ends[0]) as (_, two, _url2),
    ):
        await_value(one, 1.0, "requite_pair_active")
        eventually(lambda: get(two, "/ready").status == 200, "the passive one is ready")
        assert get(one, "/ready").status == 200
        seen = scrape(two)
        assert seen.value("requite_pair_active") == 0
        assert seen.value("requite_pair_peer_silent") == 0


def test_a_lonely_backup_is_not_ready(tmp_path: Path) -> None:
    ends = [f"ipc://{tmp_path}/{name}" for name in ("a", "b")]
    with watched("--backup", "--pair-bind", ends[0], "--peer", ends[1]) as (_, url, _broker):
        answer = get(url, "/ready")
        assert answer.status == 503
        assert answer.said["flaw"]


# --- options --------------------------------------------------------------------------------------
def test_the_file_and_the_environment_have_the_options(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('bind = ["tcp://127.0.0.1:0"]\nhttp = ":0"\nmetrics_services = 7\n')
    with running("broker", "--config", str(file)) as broker:
        assert get(url_of(broker), "/health").status == 200
    with running("broker", "--bind", "tcp://127.0.0.1:0", env={"REQUITE_HTTP": ":0"}) as broker:
        assert get(url_of(broker), "/health").status == 200
    checked = requite("broker", "--config", str(file), "--check")
    assert (checked.code, "with metrics at :0" in checked.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--http", "nonsense"), "an address of HTTP is HOST:PORT"),
        (("--http-host", "a"), "--http-host requires --http"),
        (("--http", ":0", "--http-host", "a:80"), "is not a host without a port"),
        (("--http", ":0", "--metrics-services", "0"), "--metrics-services"),
    ],
)
def test_invalid_options_are_refused(options: tuple[str, ...], text: str) -> None:
    ended = requite("broker", "--bind", "tcp://127.0.0.1:0", *options)
    assert ended.code == ExitCode.USAGE
    assert text in ended.err


def test_a_port_in_use_ends_the_command() -> None:
    with watched() as (_, url, _broker):
        place = url.removeprefix("http://")
        ended = requite("broker", "--bind", "tcp://127.0.0.1:0", "--http", place)
        assert ended.code == ExitCode.CANNOT_LISTEN
        assert "--http: cannot listen at" in ended.err


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text(
        "raise ModuleNotFoundError('no', name='prometheus_client')\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    ended = requite("broker", "--bind", "tcp://127.0.0.1:0", "--http", ":0", env=env)
    assert ended.code == ExitCode.USAGE
    assert "--http requires the package prometheus_client" in ended.err
    assert "requite[metrics]" in ended.err
