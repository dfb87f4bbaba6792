"""RabbitMQ's management API. It reports samples, taken every `sample_s`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from requite.sim.pool.store import PoolStore
    from requite.sim.rabbitmq.queue import Queue


class ApiAnswer(NamedTuple):
    """An answer of the management API."""

    status: int
    content: Any = None


class ManagementApi:
    """The API. `fails`: how many faults make it fail now; `slow_s`: its additional delay."""

    def __init__(self, store: PoolStore, api_s: float) -> None:
        self.fails = 0
        self.slow_s = 0.0
        self._store = store
        self._api_s = api_s
        self._rng = store.world.rng("api")

    def ask(self, path: str, tell: Callable[[ApiAnswer | None], None]) -> None:
        """Pass the answer to a GET to `tell`, as it was at a random instant between request and
        answer; None if the API fails."""
        delay_s = (self._api_s + self.slow_s) * (0.5 + self._rng.random())
        found: list[ApiAnswer | None] = []
        world = self._store.world
        world.after(delay_s * self._rng.random(), lambda: found.append(self._answer(path)))
        world.after(delay_s, lambda: tell(found[0]))

    def _answer(self, path: str) -> ApiAnswer | None:
        store = self._store
        if self.fails or not store.is_running():
            return None
        _, _, kind, _vhost, *names = map(unquote, path.split("/"))
        match kind, names:
            case "queues", []:
                return ApiAnswer(200, [_described(queue) for queue in store.queues.values()])
            case "queues", [name] if name in store.queues:
                return ApiAnswer(200, _described(store.queues[name]))
            case "exchanges", [name, "bindings", "source"] if name in store.exchanges:
                bound = store.exchanges.all_bound(name)
                content = [{"destination": each, "destination_type": "queue"} for each in bound]
                return ApiAnswer(200, content)
            case "exchanges", [name] if name in store.exchanges:
                return ApiAnswer(200, {})
        return ApiAnswer(404, {"reason": "Not Found"})


def _described(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "type": queue.arguments.get("x-queue-type", "classic"),
        "arguments": queue.arguments,
        "messages": len(queue.messages),
        "messages_unacknowledged": queue.sampled(),
        "consumers": queue.active_consumers,
    }
