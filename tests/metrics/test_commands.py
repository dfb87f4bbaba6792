"""`--http` of the other commands."""

from __future__ import annotations

import signal
from pathlib import Path
from socket import socket

import pytest
from tests.cli.command import requite, running, running_broker, running_worker
from tests.metrics.scrape import await_value, get, scrape, url_of
from tests.support.live import eventually

from requite import __build__, __version__
from requite.chronicle import WriterRole
from requite.cli.exit_codes import ExitCode
from requite.journal import Journal

pytestmark = pytest.mark.e2e

HTTP = ("--http", "127.0.0.1:0")


def test_a_worker() -> None:
    targets = ("requite.examples:echo", "requite.examples:fail", "requite.examples:slow")
    with (
        running_broker() as (broker, broker_url),
        running("worker", *targets, "--connect", broker_url, *HTTP) as worker,
    ):
        url = url_of(worker)
        assert worker.line().startswith("serving")
        assert get(url, "/ready").status == 200
        requite("call", f"{broker_url}/echo", "x")
        requite("call", f"{broker_url}/fail", "x")
        name = "requite_worker_handled_total"
        await_value(url, 1.0, name, service="echo", status="ok")
        seen = await_value(url, 1.0, name, service="fail", status="failed")
        assert seen.value(name, service="fail", status="ok") == 0
        assert seen.value("requite_worker_duration_seconds_count", service="fail") == 1
        with running("call", f"{broker_url}/slow", "60", "--timeout", "60"):
            await_value(url, 1.0, "requite_worker_running", service="slow")
        await_value(url, 1.0, name, service="slow", status="cancelled")
        seen = await_value(url, 0.0, "requite_worker_running", service="slow")
        assert seen.value(name, service="slow", status="ok") == 0
        broker.send(signal.SIGKILL)
        eventually(lambda: get(url, "/ready").status == 503, "the worker has no broker")
        assert get(url, "/ready").said["flaw"]
        assert get(url, "/health").status == 200
        assert get(url, "/metrics/detailed?service=echo").status == 404
        worker.send(signal.SIGTERM)
        assert worker.end()[0] == ExitCode.OK


def test_requests_that_wait_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(
        "import time\nimport requite\n\n@requite.service('held')\ndef held(request):\n"
        "    time.sleep(60)\n"
    )
    with (
        running_broker() as (_, broker),
        running("worker", "held:held", "--connect", broker, "--threads", "1", "--capacity", "2",
                *HTTP, cwd=tmp_path) as worker,
    ):  # fmt: skip
        url = url_of(worker)
        assert worker.line().startswith("serving")
        with (
            running("call", f"{broker}/held", "1", "--timeout", "60"),
            running("call", f"{broker}/held", "2", "--timeout", "60"),
            running("call", f"{broker}/held", "3", "--timeout", "60"),
        ):
            await_value(url, 2.0, "requite_worker_running", service="held")


def test_a_queue() -> None:
    anywhere = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")
    with running("queue", *anywhere, *HTTP) as queue:
        url = url_of(queue)
        front, back = (queue.line().split()[2] for _ in range(2))
        assert get(url, "/ready").status == 200
        with running_worker("requite.examples:echo", "--connect", back):
            assert requite("call", front, "hello").stdout == b"hello"
            seen = scrape(url)
            assert seen.value("requite_queue_requests_total") == 1
            assert seen.value("requite_queue_replies_total") == 1
            assert (seen.value("requite_queue_workers", state="idle") or 0) >= 1


def test_a_device() -> None:
    anywhere = ("--front", "sp+tcp://127.0.0.1:0", "--back-bind", "sp+tcp://127.0.0.1:0")
    with running("device", *anywhere, *HTTP) as device:
        url = url_of(device)
        front, back = (device.line().split()[2] for _ in range(2))
        with running_worker("requite.examples:echo", "--connect", back):
            assert requite("call", front, "hello").stdout == b"hello"
            seen = scrape(url)
            assert seen.value("requite_device_requests_total") == 1
            assert seen.value("requite_device_replies_total") == 1
            assert seen.value("requite_device_channels", side="back") == 1


def test_a_device_without_a_service_to_connect_to_is_not_ready() -> None:
    front = ("--front", "sp+tcp://127.0.0.1:0")
    with running("device", *front, "--back", "sp+tcp://127.0.0.1:1", *HTTP) as device:
        answer = get(url_of(device), "/ready")
        assert answer.status == 503
        assert "127.0.0.1:1" in answer.said["flaw"]


def test_titanic(tmp_path: Path) -> None:
    with (
        running_broker() as (broker, broker_url),
        running("titanic", "--broker", broker_url, "--dir", str(tmp_path / "x"), *HTTP) as titanic,
    ):
        url = url_of(titanic)
        titanic.line()
        eventually(lambda: get(url, "/ready").status == 200, "Titanic is ready")
        assert requite("call", f"{broker_url}/absent", "x", "--submit").code == 0
        await_value(url, 1.0, "requite_titanic_requests", state="waiting")
        broker.send(signal.SIGKILL)
        eventually(lambda: get(url, "/ready").status == 503, "Titanic has no broker")


def test_a_shipper(tmp_path: Path) -> None:
    target, gone = tmp_path / "copy", tmp_path / "gone"
    target.write_text("a file in place of the folder")
    with Journal(tmp_path / "journal", WriterRole.BROKER, b"broker-1") as journal:
        words = ("journal", "ship", str(journal.path.parent), str(target), "--follow")
        with running(*words, "--every", "0.05", *HTTP) as shipper:
            url = url_of(shipper)
            seen = await_value(url, 1.0, "requite_ship_failed")
            assert seen.value("requite_ready") == 0
            assert seen.value("requite_ship_bytes_total") == 0
            answer = get(url, "/ready")
            assert answer.status == 503
            assert str(target) in answer.said["flaw"]
            target.unlink()
            eventually(lambda: get(url, "/ready").status == 200, "the target is back")
            seen = await_value(url, 0.0, "requite_ship_failed")  # a reading answers several scrapes
            assert seen.value("requite_ship_logs") == 1
            assert (seen.value("requite_ship_bytes_total") or 0) > 0
            assert (seen.value("requite_ship_segments_total") or 0) >= 1
            assert seen.value("requite_info", version=__version__, build=__build__,
                              command="journal ship") == 1  # fmt: skip
            journal.path.parent.rename(gone)
            eventually(lambda: get(url, "/ready").status == 503, "the journal is gone")
            assert "there is no journal" in get(url, "/ready").said["flaw"]
            assert get(url, "/health").status == 200
            gone.rename(journal.path.parent)
            eventually(lambda: get(url, "/ready").status == 200, "the journal is back")
            shipper.send(signal.SIGTERM)
            code, out, errors = shipper.end()
            assert (code, out.splitlines()[-1].rpartition(": ")[2]) == (ExitCode.OK, str(target))
            assert errors.count("some data was not copied") == 2  # once each


def test_a_shipper_that_cannot_listen(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", WriterRole.BROKER, b"broker-1"), socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("journal", "ship", str(tmp_path / "journal"), str(tmp_path / "copy"), "--follow")
        ended = requite(*words, "--http", place)
        assert ended.code == ExitCode.CANNOT_LISTEN
        assert f"--http: cannot listen at {place}" in ended.err


def test_a_gateway() -> None:
    with running_broker() as (broker, broker_url), running("gateway", broker_url, *HTTP) as gateway:
        url = gateway.line().removeprefix("listening on ")
        eventually(lambda: get(url, "/ready").status == 200, "the gateway is ready")
        assert get(url, "/nothing").status in (404, 405)
        seen = await_value(url, 1.0, "requite_ready")
        answered = [labels for name, labels in seen.samples if "answered" in name]
        assert ("code", "200") in [pair for labels in answered for pair in labels]
        assert seen.value("requite_gateway_in_progress") == 0
        assert (seen.value("requite_gateway_duration_seconds_count") or 0) >= 2
        broker.send(signal.SIGKILL)
        await_value(url, 0.0, "requite_ready")


def test_the_metrics_of_a_gateway_with_users_are_for_users(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.touch(0o600)
    access.write_text('[user.ann]\ntls = "CN=ann"\ncall = ["*"]\n')
    with (
        running_broker() as (_, broker_url),
        running("gateway", broker_url, "--access", str(access), *HTTP) as gateway,
    ):
        url = gateway.line().removeprefix("listening on ")
        assert get(url, "/metrics").status == 401
        assert get(url, "/health").status == 200
