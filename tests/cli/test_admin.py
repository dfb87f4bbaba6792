"""`requite admin`: operators at a running broker."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cli.command import requite, running_broker, running_worker, write_users
from tests.support.live import eventually

from requite import Client
from requite.cli.exit_codes import ExitCode
from requite.errors import Cancelled

pytestmark = pytest.mark.e2e


def queued(url: str) -> int:
    return int(requite("services", url, "--json").record["services"][0]["queued"])


def in_progress(client: Client) -> int:
    stats = json.loads(client.call(b"", service="mmi.stats").body)
    return sum(each["in_progress"] for each in stats["services"])


def test_a_service_is_paused_purged_and_resumed() -> None:
    with (
        running_broker() as (_broker, url),
        running_worker("requite.examples:echo", "--connect", url),
        Client(f"{url}/echo", timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        assert requite("admin", "pause", url, "echo").out == "queued: 0 requests\n"
        assert "echo (paused)" in requite("services", url).out
        purged = pool.submit(client.call, b"purged")
        eventually(lambda: queued(url) == 1, "the request waits")
        assert requite("admin", "purge", url, "echo", "--json").record == {"purged": 1}
        with pytest.raises(Cancelled) as failure:
            purged.result()
        assert not failure.value.may_have_executed
        assert "purged the queue of echo" in str(failure.value)

        held = pool.submit(client.call, b"held")
        eventually(lambda: queued(url) == 1, "the next request waits")
        assert requite("admin", "resume", url, "echo").out == "queued: 1 request\n"
        assert held.result().body == b"held"


def test_a_kicked_worker_says_why_and_comes_back() -> None:
    with (
        running_broker("-v") as (broker, url),
        running_worker("requite.examples:echo", "--connect", url, "-v") as worker,
        Client(f"{url}/echo", timeout=60) as client,
    ):
        (before,) = requite("services", url, "--json").record["workers"]
        peer = before["instance"]
        ended = requite("admin", "kick", url, peer, "--reason", "it is old")
        assert ended.out == "kicked: 1 connection\n"
        while "anonymous kicked it: it is old" not in worker.error_line():
            pass
        while f"mmi.kick {peer}: 1 kicked" not in broker.error_line():
            pass
        assert client.call(b"hi").body == b"hi"
        (after,) = requite("services", url, "--json").record["workers"]
        assert after["worker"] != before["worker"]


def test_what_the_broker_does_not_know_fails() -> None:
    with running_broker() as (_broker, url):
        ended = requite("admin", "purge", url, "absent")
        assert ended.code == ExitCode.FAILED
        assert "the broker knows no absent" in ended.err
    assert requite("admin", "pause", "sp+tcp://127.0.0.1:1", "x").code == ExitCode.USAGE


def test_the_right_to_purge_is_not_the_right_to_kick(tmp_path) -> None:
    access = write_users(
        tmp_path / "access.toml",
        f'[user.ops]\nlocal = {os.getuid()}\nadmin = ["purge", "pause"]\n'
        '[user.other]\ntls = "CN=other"\n',
    )
    place = f"ipc://{tmp_path}/broker"
    with running_broker("--access", str(access), "--bind", place) as (broker, _url):
        assert broker.line().startswith("listening on ipc://")
        url = place.replace("ipc://", "mdp+ipc://")
        denied = requite("admin", "kick", url, "user:other")
        assert denied.code == ExitCode.FAILED, denied.err
        assert "ops has no right to admin 'kick'" in denied.err
        assert requite("admin", "pause", url, "absent").code == ExitCode.FAILED


def test_a_drained_broker_finishes_its_requests_and_exits() -> None:
    with (
        running_broker() as (broker, url),
        running_worker("requite.examples:slow", "--connect", url),
        Client(f"{url}/slow", timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        pending = pool.submit(client.call, b"2")
        eventually(lambda: in_progress(client) == 1, "the request is at the worker")
        assert requite("admin", "drain", url).out == "draining: 1 request\n"
        assert pending.result().body == b"2"
        assert broker.end()[0] == ExitCode.OK
