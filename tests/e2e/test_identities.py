"""One principal for each credential, from the handshake to the handler and the journal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.certificates import Certificates

import requite
from requite.access.authentication import Authenticate, Authentication
from requite.access.passwords import hash_password
from requite.errors import CallError, ConfigurationError, Denied
from requite.shell.curve import create_key_file

pytestmark = pytest.mark.e2e

PASSWORD = "s3cret"


class Scene:
    """An access file in which `shop` may call `tell`, `worker` may serve it, and `other` nothing.

    Each has a certificate, a key and a password. The Unix socket's user id is the shop's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = Certificates(folder)
        self.server_key = create_key_file(folder / "broker.key")
        names = {"shop": 'call = ["tell"]', "worker": 'serve = ["tell"]', "other": ""}
        tables = []
        for name, rights in names.items():
            key = create_key_file(folder / f"{name}.key")
            tables.append(
                f"[user.{name}]\ntls = 'CN={name}'\ncurve = '{key}'\n"
                f"password = '{hash_password(PASSWORD)}'\n{rights}\n"
            )
        tables[0] += f"local = {os.getuid()}\n"
        self.path = folder / "access.toml"
        self.path.touch(0o600)
        self.path.write_text("\n".join(tables))
        self.journal = folder / "journal"

    def broker(self, authenticate: Authenticate | None = None) -> requite.Broker:
        files = self.certificates.server
        ca = quote(self.certificates.ca)
        tls = f"?certificate={quote(files.certificate)}&key={quote(files.key)}&ca={ca}"
        return requite.Broker(
            f"tls://127.0.0.1:0{tls}",
            f"ipc://{self.folder}/socket",
            "tcp://127.0.0.1:0",
            access=self.path,
            authenticate=authenticate,
            curve=self.folder / "broker.key",
            journal=self.journal,
        )

    def url(self, broker: requite.Broker, kind: str, name: str) -> str:
        """Return the URL by which a user connects with a credential of this kind."""
        places = {place.partition("://")[0]: place for place in broker.endpoints}
        tls, tcp = (places[scheme].partition("://")[2] for scheme in ("tls", "tcp"))
        trusted = f"?ca={quote(self.certificates.ca)}"
        match kind:
            case "tls":
                user = self.certificates.user(name)
                own = f"certificate={quote(user.certificate)}&certificate_key={quote(user.key)}"
                return f"mdp+tls://{tls}{trusted}&{own}"
            case "plain":
                return f"mdp+ipc://{quote(name)}:{PASSWORD}@{self.folder}/socket"
            case "curve":
                key = quote(self.server_key, safe="")
                return f"mdp://{tcp}?curve={key}&curve_key_file={self.folder}/{name}.key"
            case _:
                return f"mdp+ipc://{self.folder}/socket"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@requite.service("tell")
async def tell(request: requite.Request) -> bytes:
    return request.principal.encode()


@pytest.mark.parametrize("kind", ["tls", "curve", "plain"])
async def test_the_handler_learns_who_calls(scene: Scene, kind: str) -> None:
    async with (
        scene.broker() as broker,
        requite.Worker(scene.url(broker, kind, "worker"), tell),
        requite.AsyncClient(scene.url(broker, kind, "shop"), service="tell") as shop,
        requite.AsyncClient(scene.url(broker, kind, "other"), service="tell") as other,
        requite.AsyncClient(scene.url(broker, "tls", "shop"), service="tell") as again,
    ):
        assert (await shop.call(b"", timeout=20)).body == b"shop"
        assert (await again.call(b"", timeout=20)).body == b"shop"
        with pytest.raises(Denied, match="other has no right to call 'tell'"):
            await other.call(b"", timeout=20)
    text = b"".join(file.read_bytes() for file in scene.journal.rglob("*") if file.is_file())
    assert b"other has no right to call" in text
    assert PASSWORD.encode() not in text


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [("tls", "TLS"), ("curve", "CURVE"), ("plain", "PLAIN"), ("local", "LOCAL")],
)
async def test_a_hook_learns_each_kind_of_credential(
    scene: Scene, kind: str, mechanism: str
) -> None:
    asked: list[Authentication] = []

    async def hook(peer: Authentication) -> bool:
        asked.append(peer)
        return True

    async with (
        scene.broker(hook) as broker,
        requite.AsyncClient(scene.url(broker, kind, "shop"), service="mmi.service") as shop,
    ):
        await shop.call(b"tell", timeout=20)
    [peer] = asked
    assert (peer.user, peer.mechanism) == ("shop", mechanism)
    assert peer.address.startswith("ipc://" if kind in ("plain", "local") else ("tls", "tcp"))


async def test_the_user_id_of_a_unix_socket_is_a_credential(scene: Scene) -> None:
    async with (
        scene.broker() as broker,
        requite.Worker(scene.url(broker, "tls", "worker"), tell),
        requite.AsyncClient(scene.url(broker, "local", ""), service="tell") as shop,
    ):
        assert (await shop.call(b"", timeout=20)).body == b"shop"


async def test_a_certificate_of_nobody_is_refused_before_the_request_is_sent(scene: Scene) -> None:
    async with (
        scene.broker() as broker,
        requite.AsyncClient(scene.url(broker, "tls", "nobody"), service="tell") as nobody,
    ):
        calling = asyncio.ensure_future(nobody.call(b"", timeout=5))
        async with asyncio.timeout(20):
            reason = await nobody.until_refused()
        assert "the listener does not admit this peer (status 400)" in reason
        with pytest.raises(CallError) as failure:
            await calling
        assert not failure.value.may_have_executed


async def test_a_key_of_nobody_is_refused(scene: Scene) -> None:
    create_key_file(scene.folder / "thief.key")
    async with (
        scene.broker() as broker,
        requite.AsyncClient(scene.url(broker, "curve", "thief"), service="tell") as thief,
    ):
        with pytest.raises(CallError) as failure:
            await thief.call(b"", timeout=5)
        assert not failure.value.may_have_executed


async def test_a_key_file_needs_to_know_whom_to_admit(scene: Scene) -> None:
    with pytest.raises(ConfigurationError, match="which peers to admit"):
        requite.Broker("tcp://127.0.0.1:0", curve=scene.folder / "broker.key")
