"""TLS, journals and idempotent services over a real RabbitMQ."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.amqp.live import serving
from tests.support.patience import failure_on_loop
from tests.support.rabbit import Rabbit

from requite import AsyncClient, Request, service
from requite.dedup import Dedup
from requite.errors import CallTimeout
from requite.journal.reader import events

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


async def test_over_tls(rabbit: Rabbit) -> None:
    url = f"{rabbit.tls_url}?ca={rabbit.certificates.ca}"
    async with serving(url, echo), AsyncClient(f"{url}&queue=echo", timeout=20) as client:
        assert (await client.call(b"hidden" * 50_000)).body == b"hidden" * 50_000


async def test_a_server_certificate_of_another_authority_is_refused(rabbit: Rabbit) -> None:
    url = f"{rabbit.tls_url}?queue=echo&ca={rabbit.certificates.other_ca}"
    async with AsyncClient(url) as client:
        await failure_on_loop(
            CallTimeout,
            "set `ca` to the file with the certificate of the authority that signed it",
            lambda timeout: client.call(b"", timeout=timeout),
        )


async def test_a_plain_connection_to_a_tls_port_times_out(rabbit: Rabbit) -> None:
    url = f"{rabbit.tls_url.replace('amqps', 'amqp')}?queue=echo"
    async with AsyncClient(url) as client:
        with pytest.raises(CallTimeout, match="has not run"):
            await client.call(b"", timeout=1.0)


async def test_client_and_worker_journals_share_request_ids(rabbit: Rabbit, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    url = f"{rabbit.url}?queue=echo"
    async with (
        serving(rabbit.url, echo, journal=folder),
        AsyncClient(url, journal=folder, timeout=20) as client,
    ):
        await client.call(b"hello")

    recorded = sorted(events(folder), key=lambda event: (event.ts, event.seq))
    at_client = [each for each in recorded if each.role == "client" and each.request_id]
    at_worker = [each for each in recorded if each.role == "worker" and each.request_id]
    assert [each.kind for each in at_client] == ["accepted", "sent", "answered"]
    assert [each.kind for each in at_worker] == ["delivered", "started", "finished"]
    assert {each.request_id for each in at_client} == {each.request_id for each in at_worker}


async def test_a_service_that_runs_each_request_once(rabbit: Rabbit, tmp_path: Path) -> None:
    runs: list[bytes] = []

    @service("pay", idempotent=Dedup(tmp_path / "replies"))
    async def pay(request: Request) -> bytes:
        runs.append(request.body)
        return b"paid %d" % len(runs)

    async with serving(rabbit.url, pay), AsyncClient(f"{rabbit.url}?queue=pay") as client:
        first = await client.call(b"1", idempotency_key=b"k", timeout=20)
        again = await client.call(b"1", idempotency_key=b"k", timeout=20)
        other = await client.call(b"2", timeout=20)

    assert (first.body, again.body, other.body) == (b"paid 1", b"paid 1", b"paid 2")
    assert runs == [b"1", b"2"]
