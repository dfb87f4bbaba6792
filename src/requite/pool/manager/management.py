"""Client of RabbitMQ's management API: request queues, their bindings and message counts.

Source: "RabbitMQ Management HTTP API". Its message counts are some seconds old; exact counts come
over AMQP (`rabbit.py`).
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig
from requite.pool.manager.address import ConnectionSettings
from requite.pool.manager.verification import Flaw, flaws_of
from requite.pool.queues import limits_of
from requite.protocols.amqp.topology import Pool

if TYPE_CHECKING:
    from requite.pool.drivers.web import Answer, Web

_COLUMNS: Final = "name,messages,consumers,type,arguments,effective_policy_definition"
_NO_TAG: Final = "the user has no access to the management API; give the user the tag `management`"
_NO_API: Final = "no management API at this URL; enable the plugin rabbitmq_management"
_NO_VHOST: Final = (
    "the API does not show the virtual host of rabbitmq.url: use the API of the same"
    " RabbitMQ, and give its user permissions for the virtual host (they may be empty)"
)
_REFUSED: Final = {401: "RabbitMQ refused the user name or password", 403: _NO_TAG, 404: _NO_API}


class QueueListing(NamedTuple):
    """A request queue: whether it is bound, its recent counts of messages and consumers, and its
    flaws."""

    bound: bool
    messages: int
    consumers: int
    flaws: tuple[Flaw, ...] = ()


class Management:
    """The management API, for one pool. `web`: the HTTP client, by default one for
    `rabbitmq.management_url`."""

    def __init__(self, config: PoolConfig, web: Web | None = None) -> None:
        self._pool: Final = Pool(config.pool.name)
        settings = ConnectionSettings(config)
        self._vhost: Final = quote(settings.vhost, safe="")
        self._timeout_s: Final = config.rabbitmq.management_timeout_s
        self._limits: Final = limits_of(config)
        self._headers: dict[str, str] = {}
        if web is None:
            web, self._headers = _client_of(config, settings)
        self._web: Final = web

    async def list_queues(self) -> dict[str, QueueListing]:
        """Return the request queues of the pool, by key, with the flaws of each. Raises
        `DriverError`."""
        bound = await self._bound()
        found = await self._get(f"/api/queues/{self._vhost}", {"columns": _COLUMNS})
        queues = {}
        for queue in found:
            key = self._pool.key_of(queue["name"])
            if key is not None:
                counts = queue.get("messages", 0), queue.get("consumers", 0)
                queues[key] = QueueListing(queue["name"] in bound, *counts, self._flaws(key, queue))
        return queues

    async def unacknowledged(self, key: str) -> int:
        """Return the recent count of unacknowledged messages of a group's queue."""
        return int((await self._queue(key)).get("messages_unacknowledged", 0))

    async def flaws(self, key: str) -> tuple[Flaw, ...]:
        """Read a group's queue back; return its flaws. Raises `DriverError`."""
        return self._flaws(key, await self._queue(key))

    def _flaws(self, key: str, found: Any) -> tuple[Flaw, ...]:
        wanted = self._pool.request_queue_to_declare(key, self._limits)
        return tuple(flaws_of(wanted.name, found, wanted.arguments))

    async def _queue(self, key: str) -> Any:
        name = quote(self._pool.request_queue(key), safe="")
        return await self._get(f"/api/queues/{self._vhost}/{name}", {})

    async def check(self) -> None:
        """Test that the API answers. Raises `DriverError`; `ConfigurationError` if it refuses."""
        exchange = quote(self._pool.requests_exchange, safe="")
        path = f"/api/exchanges/{self._vhost}/{exchange}"
        expect = (200, *_REFUSED)
        answer = await self._web.ask(
            "GET", path, expect=expect, headers=self._headers, timeout_s=self._timeout_s
        )
        if answer.status in _REFUSED:
            raise ConfigurationError(f"rabbitmq.management_url: {_refusal(answer)}")

    async def close(self) -> None:
        """Close the connections."""
        await self._web.close()

    async def _bound(self) -> set[str]:
        exchange = quote(self._pool.requests_exchange, safe="")
        path = f"/api/exchanges/{self._vhost}/{exchange}/bindings/source"
        found = await self._get(path, {})
        return {each["destination"] for each in found if each["destination_type"] == "queue"}

    async def _get(self, path: str, params: dict[str, str]) -> Any:
        answer = await self._web.ask(
            "GET",
            path,
            expect=(200,),
            params=params,
            headers=self._headers,
            timeout_s=self._timeout_s,
        )
        return answer.content


def _client_of(config: PoolConfig, settings: ConnectionSettings) -> tuple[Web, dict[str, str]]:
    """Return an HTTP client for the management API, and the headers of its requests."""
    from yarl import URL

    from requite.pool.drivers.web import Web

    url = URL(config.rabbitmq.management_url)
    if url.scheme not in ("http", "https"):
        raise ConfigurationError("rabbitmq.management_url: use an http:// or https:// URL")
    credentials = f"{url.user or 'guest'}:{url.password or 'guest'}"
    root = str(url.with_user(None)).rstrip("/")
    web = Web("the management API", "rabbitmq.management_url", root, tls=settings.context)
    return web, {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}


def _refusal(answer: Answer) -> str:
    """Return why the API refuses. RabbitMQ also answers 401 to a user without the tag; for a
    virtual host that the user may not see, it answers 401 (3.10) or 404 (4.3)."""
    if not isinstance(answer.content, dict):
        return _REFUSED[answer.status]
    reason = str(answer.content.get("reason", ""))
    if "management user" in reason:
        return _NO_TAG
    if "virtual host" in reason or answer.status == 404:
        return _NO_VHOST
    return _REFUSED[answer.status]
