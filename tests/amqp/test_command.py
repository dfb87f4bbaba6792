"""The commands `requite call` and `requite bench`, and the status of a worker, with RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.amqp.live import serving
from tests.cli.command import Ended, requite, write_users
from tests.support.rabbit import Rabbit

from requite import Request, Worker, service
from requite.cli.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


@pytest.fixture
async def url(rabbit: Rabbit) -> AsyncIterator[str]:
    """The URL of a RabbitMQ with a worker that serves `echo`."""
    async with serving(rabbit.url, echo):
        yield rabbit.url


async def command(*words: str) -> Ended:
    return await asyncio.to_thread(requite, *words)


async def test_commands_send_no_service_queries_to_rabbitmq(rabbit: Rabbit) -> None:
    """Commands send no `mmi.service` queries to RabbitMQ.

    RabbitMQ would deliver a query as an ordinary request, which starts a group in a pool.
    """
    asked = []

    @service("mmi.service")
    async def asking(request: Request) -> bytes:
        asked.append(request.body)
        return b"404"

    async with serving(rabbit.url, echo, asking):
        ended = await command("call", rabbit.url, "x", "--service", "echo")
        assert (ended.code, ended.stdout) == (ExitCode.OK, b"x")
        ended = await command("bench", rabbit.url, "--service", "echo", "--requests", "10")
        assert ended.code == ExitCode.OK
    assert asked == []


async def test_credentials_come_from_a_file(url: str, rabbit: Rabbit, tmp_path: Path) -> None:
    place = url.replace(f"{rabbit.user}:{rabbit.password}@", "")
    file = tmp_path / "me"
    for password, code in ((rabbit.password, ExitCode.OK), ("wrong", ExitCode.NO_CONNECTION)):
        write_users(file, f"{rabbit.user}:{password}\n")
        words = "call", f"{place}?queue=echo", "x", "--credentials-file", str(file)
        assert (await command(*words)).code == code


async def test_a_worker_is_connected_once_rabbitmq_has_confirmed_its_consumer(
    rabbit: Rabbit,
) -> None:
    async with Worker(rabbit.url, echo) as worker:
        await asyncio.wait_for(worker.until_connected(0), 20)
        assert worker.trouble == ""
    async with Worker(rabbit.url_of(password="wrong"), echo) as worker:
        async with asyncio.timeout(20):
            while "ACCESS_REFUSED" not in worker.trouble:  # noqa: ASYNC110 - `trouble` has no event
                await asyncio.sleep(0.01)
        assert "wrong" not in worker.trouble
