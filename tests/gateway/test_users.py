"""Who may make calls over HTTP: tokens and passwords of the access file."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.rig import Door, Held, opened
from tests.typed.shop import Shop

import requite
from requite.access.file import parse
from requite.access.passwords import hash_password
from requite.access.tokens import hash_token, new_token
from requite.errors import ConfigurationError
from requite.gateway import Gateway
from requite.gateway.server import GatewayServer
from requite.web.place import Place

TOKEN, OTHER = new_token(), new_token()
HASHED = hash_password("pässword")
APPLE = {"sku": "apple", "count": 2}


def users(path: Path, text: str = "") -> Path:
    file = path / "access.toml"
    content = (
        text
        or f"""
[user.shop]
token = "{hash_token(TOKEN)}"
call = ["orders.price"]

[user.ops]
password = "{HASHED}"
token = ["{hash_token(OTHER)}"]
call = ["orders.*"]
"""
    )
    new = path / "new.toml"
    new.write_text(content)
    new.chmod(0o600)
    os.replace(new, file)
    return file


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


async def status(door: Door, authorization: str | None, address: str = "orders.price") -> Any:
    fields = {} if authorization is None else {"Authorization": authorization}
    answer = await door.post(address, APPLE, **fields)
    return answer.status


async def test_a_request_needs_the_token_or_password_of_a_user_with_the_right(
    tmp_path: Path,
) -> None:
    shop = Shop()
    async with opened(shop.service, access=users(tmp_path)) as door:
        assert await status(door, f"Bearer {TOKEN}") == 200
        assert await status(door, f"bearer  {OTHER} ") == 200
        assert await status(door, basic("ops", "pässword")) == 200
        assert await status(door, basic("ops", "pässword"), "orders.slow") == 200
        served = len(shop.seen)
        assert await status(door, f"Bearer {TOKEN}", "orders.slow") == 403
        for wrong in (
            None,
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Bearer {hash_token(TOKEN)}",
            "Bearer \xff",
            TOKEN,
            basic("ops", "password"),
            basic("shop", TOKEN),
            basic("nobody", "pässword"),
            "Basic !!!",
            "Basic " + b64encode(b"\xff:\xff").decode(),
            "Basic " + b64encode(b"ops").decode(),
            "Digest a=b",
        ):
            assert await status(door, wrong) == 401
        assert len(shop.seen) == served


async def test_refusals_say_what_is_missing_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with opened(Shop().service, access=users(tmp_path)) as door:
        none = await door.post("orders.price", APPLE)
        assert none.headers["www-authenticate"].startswith('Bearer, Basic realm="requite"')
        assert none.said["may_have_executed"] is False
        denied = await door.post("orders.slow", APPLE, Authorization=f"Bearer {TOKEN}")
        assert "shop has no right to call 'orders.slow'" in denied.said["detail"]
        secret = basic("ops", "a wrong secret")
        wrong = await door.post("orders.price", APPLE, Authorization=secret)
        said = str((none, denied, wrong)) + caplog.text
        for each in (TOKEN, "a wrong secret", secret.partition(" ")[2], HASHED):
            assert each not in said


async def test_the_document_has_what_the_user_may_call(tmp_path: Path) -> None:
    async with opened(Shop().service, access=users(tmp_path)) as door:
        assert (await door.get("/openapi.json")).status == 401
        mine = (await door.get("/openapi.json", Authorization=f"Bearer {TOKEN}")).said
        assert list(mine["paths"]) == ["/orders.price"]
        assert "security" not in mine["paths"]["/orders.price"]["post"]
        assert {} not in mine["security"]
        assert set(mine["components"]["securitySchemes"]) == {"token", "password"}
        every = (await door.get("/openapi.json", Authorization=f"Bearer {OTHER}")).said
        assert "/orders.slow" in every["paths"]
        for path in ("/", "/page.js", "/health", "/ready", "/problems"):
            assert (await door.get(path)).status == 200


async def test_anonymous_users_have_their_rights(tmp_path: Path) -> None:
    text = '[user.public]\nanonymous = true\ncall = ["orders.price"]\n'
    async with opened(Shop().service, access=users(tmp_path, text)) as door:
        assert await status(door, None) == 200
        assert await status(door, None, "orders.slow") == 403
        document = (await door.get("/openapi.json")).said
        assert {} in document["paths"]["/orders.price"]["post"]["security"]
        refused = await door.post("orders.price", APPLE, Authorization="Bearer x")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    async with opened(Shop().service, access=users(tmp_path)) as door:
        assert await status(door, f"Bearer {TOKEN}") == 200
        users(tmp_path, f'[user.shop]\ntoken = "{hash_token(OTHER)}"\ncall = ["orders.price"]\n')
        await door.gateway.read_access()
        assert await status(door, f"Bearer {TOKEN}") == 401
        assert await status(door, f"Bearer {OTHER}") == 200
        users(tmp_path, "what is this")
        with pytest.raises(ConfigurationError, match="not TOML"):
            await door.gateway.read_access()
        assert await status(door, f"Bearer {OTHER}") == 200


async def test_keys_of_two_users_differ(tmp_path: Path) -> None:
    shop = Shop()
    async with opened(shop.service, access=users(tmp_path)) as door:
        for token in (TOKEN, OTHER):
            fields = {"Authorization": f"Bearer {token}", "Idempotency-Key": "1"}
            assert (await door.post("orders.price", APPLE, **fields)).status == 200
        assert [each.idempotency_key for each in shop.contexts] == [b"shop/1", b"ops/1"]


async def test_at_a_broker_without_users_the_requests_are_those_of_the_gateway(
    tmp_path: Path,
) -> None:
    shop = Shop()
    async with opened(shop.service, access=users(tmp_path)) as door:
        assert await status(door, f"Bearer {TOKEN}") == 200
        assert [each.principal for each in shop.contexts] == [""]


async def test_wrong_passwords_do_not_delay_other_users(tmp_path: Path) -> None:
    async with opened(Shop().service, access=users(tmp_path)) as door:
        assert await status(door, basic("ops", "pässword")) == 200  # remembered
        wrong = [status(door, basic("ops", f"guess {n}")) for n in range(15)]
        guessing = asyncio.ensure_future(asyncio.gather(*wrong))
        assert await status(door, basic("ops", "pässword")) == 200
        assert await status(door, f"Bearer {TOKEN}") == 200
        assert not guessing.done()
        assert set(await guessing) == {401}


async def test_a_gateway_without_rights_at_the_broker_says_so(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    access = users(
        tmp_path / "broker",
        f"""
[user.gateway]
password = "{HASHED}"
call = ["orders.describe", "orders.price"]

[user.worker]
password = "{HASHED}"
serve = ["orders.*"]
""",
    )
    broker = requite.Broker("tcp://127.0.0.1:0", access=access)
    [endpoint] = await broker.start()
    place = endpoint.removeprefix("tcp://")
    worker = requite.Worker(f"mdp://worker:p%C3%A4ssword@{place}", Shop().service)
    await worker.start()
    await worker.until_connected(0)
    async with (
        requite.AsyncClient(f"mdp://gateway:p%C3%A4ssword@{place}") as client,
        Gateway(client) as gateway,
        httpx.AsyncClient(transport=httpx.ASGITransport(gateway), base_url="http://door") as http,
    ):
        door = Door(http, gateway, client)
        assert (await door.post("orders.price", APPLE)).status == 200
        denied = await door.post("orders.slow", APPLE)
        assert (denied.status, denied.said["error"]) == (403, "Denied")
        assert "orders.slow" in denied.said["detail"]
        listed = await door.get("/openapi.json")
        assert (listed.status, listed.said["error"]) == (403, "Denied")
        assert "stats" in listed.said["detail"]
        named = Gateway(client, services=["orders"])
        transport = httpx.ASGITransport(named)
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as other:
            assert (await other.get("/openapi.json")).is_success
    await worker.close()
    await broker.close()


async def test_few_passwords_are_checked_at_a_time(tmp_path: Path) -> None:
    async with opened(Shop().service, access=users(tmp_path)) as door:
        wrong = [status(door, basic("ops", f"guess {n}")) for n in range(20)]
        answers = await asyncio.gather(*wrong)
        assert (answers.count(401), answers.count(503)) == (16, 4)
        assert await status(door, basic("ops", "pässword")) == 200


LIMITED = f"""
[quota.small]
{{limits}}

[user.shop]
token = "{hash_token(TOKEN)}"
call = ["*"]
quota = "small"

[user.ops]
token = "{hash_token(OTHER)}"
call = ["*"]
"""


async def test_a_user_has_as_many_requests_in_progress_as_its_quota_allows(tmp_path: Path) -> None:
    held, shop = Held(), {"Authorization": f"Bearer {TOKEN}"}
    access = users(tmp_path, LIMITED.format(limits="requests = 2"))
    async with opened(held.service, access=access) as door:
        calls = [
            asyncio.ensure_future(door.post(f"held.{method}", APPLE, **fields))
            for method, fields in (
                ("wait", shop), ("tick", shop), ("wait", {"Authorization": f"Bearer {OTHER}"}),
            )
        ]  # fmt: skip
        for _ in calls:
            await held.started.get()
        refused = await door.post("held.wait", APPLE, **shop)
        assert (refused.status, refused.said["error"]) == (429, "QuotaReached")
        assert refused.said["detail"] == (
            "shop has reached its quota: requests = 2; the request has not run"
        )
        assert (refused.said["may_have_executed"], refused.headers["retry-after"]) == (False, "1")
        assert await status(door, f"Bearer {TOKEN}", "held.nothing") == 429
        users(tmp_path, LIMITED.format(limits="requests = 3"))
        await door.gateway.read_access()
        more = asyncio.ensure_future(door.post("held.wait", APPLE, **shop))
        await held.started.get()
        held.gate.set()
        assert [(await each).status for each in (*calls, more)] == 4 * [200]
        assert await status(door, f"Bearer {TOKEN}", "held.wait") == 200


async def test_a_user_sends_as_many_requests_in_a_second_as_its_quota_allows(
    tmp_path: Path,
) -> None:
    access = users(tmp_path, LIMITED.format(limits="requests_per_s = 1"))
    async with opened(Shop().service, access=access) as door:
        mine = await asyncio.gather(*(status(door, f"Bearer {TOKEN}") for _ in range(20)))
        others = await asyncio.gather(*(status(door, f"Bearer {OTHER}") for _ in range(20)))
        assert (mine[0], mine.count(429) > 10, set(others)) == (200, True, {200})


async def test_the_bodies_of_a_user_are_within_its_quota(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = users(tmp_path, LIMITED.format(limits='bytes = "4K"'))
    async with opened(Shop().service, access=access) as door:
        large = {"sku": "a" * 4096, "count": 1}
        for token, code in ((TOKEN, 429), (OTHER, 200), (TOKEN, 429)):
            answer = await door.post("orders.price", large, Authorization=f"Bearer {token}")
            assert answer.status == code
        assert "bytes = 4096" in answer.said["detail"]
        for _ in range(5):  # the bytes of each body are given back
            small = await door.post(
                "orders.price", {"sku": "a" * 3000, "count": 1}, Authorization=f"Bearer {TOKEN}"
            )
            assert small.status == 200
    assert "only a broker enforces" not in caplog.text


@pytest.mark.parametrize(
    "value", ["abc", "sha256:", "sha256:" + "A" * 64, "sha256:" + "a" * 63, TOKEN, ""]
)
def test_a_token_in_the_file_is_a_hash(value: str) -> None:
    with pytest.raises(ConfigurationError, match="requite access token") as refusal:
        parse(f'[user.shop]\ntoken = "{value}"\n'.encode())
    assert not value or value not in str(refusal.value)


def test_two_users_cannot_have_one_token() -> None:
    line = f'token = "{hash_token(TOKEN)}"\n'
    with pytest.raises(ConfigurationError, match="has it as well"):
        parse(f"[user.a]\n{line}[user.b]\n{line}".encode())


async def test_tokens_are_not_sent_in_the_clear_to_other_machines(tmp_path: Path) -> None:
    url, place, access = "mdp://127.0.0.1:1", Place("0.0.0.0", 0), users(tmp_path)
    with pytest.raises(ConfigurationError, match="--tls-certificate"):
        GatewayServer(url, place, access=access)
    GatewayServer(url, place, access=access, insecure=True)
    GatewayServer(url, Place("127.0.0.1", 0), access=access)
