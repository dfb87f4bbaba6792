"""The alert rules fire in a real Prometheus while processes of a cluster are killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import WAIT_S, requite, running, running_worker
from tests.deploy.files import DEPLOY, tool
from tests.metrics.scrape import url_of
from tests.support.live import eventually

from requite.cli.exit_codes import ExitCode
from requite.client import Client
from requite.errors import NoService
from requite.testing.processes import free_ports

pytestmark = pytest.mark.e2e

PROMETHEUS = tool("prometheus")
CONFIGURATION = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: requite
    static_configs: [{{targets: ["{target}"]}}]
"""
FATAL = """
import os, signal
import requite

@requite.service("fatal")
async def fatal(request):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[str]:
    """Run Prometheus with the alert rules, of which each waits one second; yield its URL."""
    assert PROMETHEUS is not None
    rules, count = re.subn(r"for: \w+", "for: 1s", (DEPLOY / "alerts.yml").read_text())
    assert count
    (folder / "alerts.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(target=target))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        PROMETHEUS,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command)
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def ask(prometheus: str, path: str) -> Any:
    """Return what Prometheus answers; nothing as long as it starts."""
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return {}


def has_scraped(prometheus: str) -> bool:
    return bool(ask(prometheus, "query?query=up==1").get("result"))


def firing(prometheus: str) -> set[str]:
    """Return the names of the alerts that fire, each with its service, if it has one."""
    alerts = ask(prometheus, "alerts").get("alerts", [])
    labels = [each["labels"] for each in alerts if each["state"] == "firing"]
    return {f"{each['alertname']} {each.get('service', '')}".rstrip() for each in labels}


def lose_workers(broker: str, folder: Path) -> None:
    """Call a handler that kills its process, with as many workers as the call may lose."""
    with ExitStack() as stack:
        for _ in range(3):
            worker = running_worker("fatal:fatal", "--connect", broker, cwd=folder)
            stack.enter_context(worker)
        ended = requite("call", f"{broker}/fatal", "x", "--timeout", "60")
        assert ended.code == ExitCode.LOST, ended


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus (Debian's prometheus)")
def test_alerts_fire_while_workers_and_the_broker_are_killed(tmp_path: Path) -> None:
    (tmp_path / "fatal.py").write_text(FATAL)
    with running("broker", "--bind", "tcp://127.0.0.1:0", "--http", ":0") as broker:
        target = url_of(broker).removeprefix("http://")
        url = broker.line().replace("listening on tcp", "mdp")
        with prometheus(target, tmp_path) as alerts:

            def fires(*names: str) -> None:
                eventually(lambda: {*names} <= firing(alerts), " and ".join(names))

            with running_worker("requite.examples:echo", "--connect", url) as worker:
                requite("call", f"{url}/echo", "x")
                eventually(lambda: has_scraped(alerts), "Prometheus scrapes the broker")
                for _ in range(4):
                    lose_workers(url, tmp_path)
                fires("RequitePoisoned fatal", "RequiteWorkersLost fatal")
                assert "RequiteNoWorkers echo" not in firing(alerts)
                worker.send(signal.SIGKILL)
            with Client(f"{url}/echo") as client, ThreadPoolExecutor(1) as pool:
                call = pool.submit(client.call, b"x")
                fires("RequiteNoWorkers echo")
                assert isinstance(call.exception(WAIT_S), NoService)
            assert "RequiteDown" not in firing(alerts)
            broker.send(signal.SIGKILL)
            fires("RequiteDown")
