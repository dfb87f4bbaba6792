"""Who may see the page of a broker with an access file."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.test_users import users
from tests.page.rig import WAIT_S, Shown, get, shown

from requite.access.passwords import hash_password
from requite.access.tokens import hash_token, new_token

pytestmark = pytest.mark.e2e

SHOP, OPS = new_token(), new_token()
PASSWORD = "pässword"
_SHOP = f'[user.shop]\ntoken = "{hash_token(SHOP)}"\ncall = ["*"]\nadmin = ["pause"]\n'
_OPS = f"""
[user.ops]
password = "{hash_password(PASSWORD)}"
token = "{hash_token(OPS)}"
admin = ["stats"]
"""
PATHS = ("/", "/services/none", "/requests", f"/requests/{32 * '0'}", "/events")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("access")
    with shown("--access", str(users(folder, _SHOP + _OPS)), journal=folder / "j") as broker:
        yield broker


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("ops", "wrong"),
        basic("nobody", PASSWORD),
        {"Authorization": f"Bearer {new_token()}"},
        {"Authorization": "Basic ???"},
        {"Authorization": "Digest x"},
    ],
)
def test_nobody_else_sees_it(broker: Shown, path: str, headers: dict[str, str]) -> None:
    answer = get(broker, path, headers)
    assert answer.status == 401
    ways = answer.headers.get_all("WWW-Authenticate")  # type: ignore[attr-defined]
    assert ways == ["Bearer", 'Basic realm="requite", charset="UTF-8"']
    assert "Log in as a user with admin" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_user_without_the_right_does_not_see_it(broker: Shown, path: str) -> None:
    answer = get(broker, path, {"Authorization": f"Bearer {SHOP}"})
    assert answer.status == 403
    assert "The user shop lacks the right" in answer.text


@pytest.mark.parametrize("headers", [basic("ops", PASSWORD), {"Authorization": f"Bearer {OPS}"}])
def test_a_user_with_the_right_sees_it(broker: Shown, headers: dict[str, str]) -> None:
    assert "No service yet" in get(broker, "/", headers).text
    assert "has no event of request" in get(broker, f"/requests/{32 * '0'}", headers).text


def test_the_rest_is_open_as_before(broker: Shown) -> None:
    for path in ("/metrics", "/health", "/ready", "/page.css", "/page.js"):
        assert get(broker, path).status == 200


async def test_an_open_page_ends_with_the_right(tmp_path: Path) -> None:
    file = users(tmp_path, _SHOP + _OPS)
    with shown("--access", str(file)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        fields = f"Host: localhost\r\nAuthorization: Bearer {OPS}\r\n\r\n"
        writer.write(f"GET /events HTTP/1.1\r\n{fields}".encode())
        async with asyncio.timeout(WAIT_S):
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b"data: {")
            users(tmp_path, _SHOP)
            await reader.readuntil(b"event: end\n")
        writer.close()
