"""Mutual TLS for every protocol of requite: clients, workers, brokers, queues, pairs, Titanics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support.certificates import Certificates, Shown
from tests.support.live import eventually
from tests.support.patience import failure_on_loop

import requite
from requite.core.liveness import HeartbeatPolicy
from requite.errors import CallTimeout
from requite.examples import echo
from requite.pair import Pair
from requite.pair.operator import Operator
from requite.queue import Queue
from requite.sp import Device
from requite.testing.processes import free_ports
from requite.titanic import Titanic, TitanicSettings
from requite.titanic.endpoint import endpoint_at

pytestmark = pytest.mark.e2e

SECURE = "tls://127.0.0.1:0"


class Scene:
    """The certificates of a test, and the options of its addresses and URLs."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        shown = certificates.server
        self.listening = f"?certificate={shown.certificate}&key={shown.key}&ca={certificates.ca}"

    def dialling(self, user: str = "shop", key: str = "key") -> str:
        """Return the options of a user who dials."""
        shown = self.certificates.user(user)
        return f"?ca={self.certificates.ca}&certificate={shown.certificate}&{key}={shown.key}"

    @property
    def broker(self) -> requite.Broker:
        return requite.Broker(SECURE + self.listening)

    def url(self, broker: requite.Broker, service: str = "", user: str = "shop") -> str:
        """Return the URL of a broker, for a user."""
        place = broker.endpoints[0].removeprefix("tls")
        return f"mdp+tls{place}/{service}" + self.dialling(user, "certificate_key")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(Certificates(tmp_path_factory.mktemp("certificates")))


async def with_broker(scene: Scene, stack: AsyncExitStack) -> str:
    broker = await stack.enter_async_context(scene.broker)
    assert broker.endpoints[0].startswith("tls://127.0.0.1:")
    await stack.enter_async_context(requite.Worker(scene.url(broker, user="worker"), echo))
    return scene.url(broker, "echo")


async def with_old_broker(scene: Scene, stack: AsyncExitStack) -> str:
    return f"{await with_broker(scene, stack)}&dialect=0.2"


async def with_freelance(scene: Scene, stack: AsyncExitStack) -> str:
    server = requite.Worker(echo, bind=f"flp+{SECURE}{scene.listening}")
    await stack.enter_async_context(server)
    return server.addresses[0] + scene.dialling()


async def with_pirate(scene: Scene, stack: AsyncExitStack) -> str:
    server = requite.Worker(echo, bind=f"pirate+{SECURE}{scene.listening}")
    await stack.enter_async_context(server)
    return server.addresses[0] + scene.dialling()


async def with_queue(scene: Scene, stack: AsyncExitStack) -> str:
    queue = Queue(SECURE + scene.listening, f"pirate+{SECURE}{scene.listening}")
    await stack.enter_async_context(queue)
    back, _, protocol = queue.back_addresses[0].partition("?")
    url = f"{back}{scene.dialling('worker')}&{protocol}"
    await stack.enter_async_context(requite.Worker(url, echo))
    return queue.front_addresses[0] + scene.dialling()


async def with_device(scene: Scene, stack: AsyncExitStack) -> str:
    device = Device(f"sp+{SECURE}{scene.listening}", f"sp+{SECURE}{scene.listening}")
    await stack.enter_async_context(device)
    await stack.enter_async_context(
        requite.Worker(device.back_addresses[0] + scene.dialling("worker"), echo)
    )
    return device.front_addresses[0] + scene.dialling()


SERVED = {
    "broker": with_broker,
    "MDP 0.2": with_old_broker,
    "Freelance": with_freelance,
    "Pirate": with_pirate,
    "queue": with_queue,
    "device": with_device,
}


@pytest.mark.parametrize("kind", SERVED)
async def test_calls(scene: Scene, kind: str) -> None:
    async with AsyncExitStack() as stack:
        url = await SERVED[kind](scene, stack)
        async with requite.AsyncClient(url, timeout=20) as client:
            bodies = [b"x", bytes(1 << 20), *(b"%d" % n for n in range(20))]
            replies = await asyncio.gather(*map(client.call, bodies))
            assert [reply.body for reply in replies] == bodies


@pytest.mark.parametrize("kind", SERVED)
async def test_a_client_without_a_certificate_is_told(scene: Scene, kind: str) -> None:
    async with AsyncExitStack() as stack:
        url = await SERVED[kind](scene, stack)
        place, _, options = url.partition("?")
        kept = "&".join(
            each for each in options.split("&") if not each.startswith(("certificate", "key="))
        )
        async with requite.AsyncClient(f"{place}?{kept}") as client:
            error = await failure_on_loop(
                CallTimeout, "certificate required", lambda limit: client.call(b"x", timeout=limit)
            )
            assert error.may_have_executed is False


@pytest.mark.parametrize("kind", ["broker", "Freelance", "Pirate", "device"])
async def test_a_blocking_client(scene: Scene, kind: str) -> None:
    async with AsyncExitStack() as stack:
        url = await SERVED[kind](scene, stack)

        def call() -> bytes:
            with requite.Client(url, timeout=20) as client:
                return client.call(b"x").body

        assert await asyncio.to_thread(call) == b"x"


async def test_the_owner_of_a_connection_is_its_certificate(scene: Scene) -> None:
    async with (
        scene.broker as broker,
        requite.AsyncClient(scene.url(broker, "mmi.service"), timeout=20) as client,
    ):
        await client.call(b"echo")
        [link] = broker._shell.host.links
        assert str(link.principal) == "tls:CN=shop,OU=users,O=Example"
        credential = link.stream.peer_credential
        assert credential is not None
        assert credential.names[1] == "CN=shop"


async def test_a_user_with_a_password_owns_the_connection(scene: Scene) -> None:
    """A broker without `ca` knows nobody by a certificate, and the password is encrypted."""
    one_sided = SECURE + scene.listening.partition("&ca=")[0]
    async with requite.Broker(one_sided, users={"ann": "secret"}) as broker:
        url = f"{scene.url(broker, 'mmi.service').partition('?')[0]}?ca={scene.certificates.ca}"
        known = url.replace("mdp+tls://", "mdp+tls://ann:secret@")
        async with requite.AsyncClient(known, timeout=20) as client:
            await client.call(b"echo")
            [link] = broker._shell.host.links
            assert str(link.principal) == "plain:ann"
        wrong = url.replace("mdp+tls://", "mdp+tls://ann:guess@")
        async with requite.AsyncClient(wrong) as client:
            await failure_on_loop(
                CallTimeout, "refused the user name", lambda limit: client.call(b"", timeout=limit)
            )


async def until(look: Callable[[], object]) -> None:
    """Wait until `look` returns something true."""
    await asyncio.to_thread(eventually, look, "the state of the pair")


# --- pairs ----------------------------------------------------------------------------------------
class SecurePair:
    """A primary and a backup, whose link uses TLS."""

    def __init__(self, scene: Scene, backup: Shown) -> None:
        self._scene = scene
        self.ports = dict(zip(("primary", "backup"), free_ports(2), strict=True))
        self.primary = self._make("primary", "backup", scene.certificates.server)
        self.backup = self._make("backup", "primary", backup)

    def _make(self, role: str, other: str, shown: Shown) -> Pair:
        own = f"?certificate={shown.certificate}&key={shown.key}&ca={self._scene.certificates.ca}"
        place = "tls://127.0.0.1:{}{}"
        return Pair(
            role,  # type: ignore[arg-type]
            bind=place.format(self.ports[role], own),
            peer=place.format(self.ports[other], own),
            heartbeat=0.5,
        )


async def test_a_pair_exchanges_heartbeats_and_takes_orders(scene: Scene) -> None:
    pair = SecurePair(scene, scene.certificates.server)
    async with pair.primary, pair.backup:
        await until(lambda: pair.primary.serves and pair.backup.view.peer_state is not None)
        async with Operator(pair.backup.endpoint + scene.dialling("ops")) as operator:
            assert not (await operator.view()).serves


async def test_a_stranger_is_no_server_of_a_pair(scene: Scene) -> None:
    pair = SecurePair(scene, scene.certificates.stranger)
    async with pair.primary, pair.backup:
        await until(lambda: "certificate" in pair.primary.view.trouble)
        await until(lambda: "unknown ca" in pair.backup.view.trouble)
        assert pair.primary.view.peer_state is pair.backup.view.peer_state is None


# --- Titanic --------------------------------------------------------------------------------------
def titanic_at(url: str, **settings: Any) -> Titanic:
    at = endpoint_at(url, None, 1 << 20, HeartbeatPolicy())
    return Titanic(at, TitanicSettings(**settings))


async def test_a_replica_stores_requests_behind_another_broker(scene: Scene) -> None:
    async with scene.broker as near, scene.broker as far:
        replica = scene.url(far, user="titanic")
        async with (
            titanic_at(replica, standby=True),
            titanic_at(scene.url(near, user="titanic"), replica=replica, sync=True),
            requite.Worker(scene.url(near, user="worker"), echo),
            requite.AsyncClient(scene.url(near, "echo"), timeout=20) as client,
        ):
            ticket = await client.submit(b"x")
            assert (await client.result(ticket)).body == b"x"
