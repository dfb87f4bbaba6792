"""Lists the services and managers of a pool at a broker of MDP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from requite.client import AsyncClient
from requite.errors import RemoteViolation
from requite.pool.config import PoolConfig
from requite.pool.inputs import ServiceCounts
from requite.protocols.majordomo.keyed import key_of, managers_of, prefix_of

_UNDER: Final = "mmi.under"
_UNKNOWN: Final = b"501"  # 8/MMI: the broker has no such service
# Each listing has the same names; parse each name once.
_key_of: Final = lru_cache(maxsize=10_000)(key_of)


@dataclass(frozen=True, slots=True)
class ServiceListing:
    """Services of a pool at a broker.

    - `groups`: by key.
    - `others`: services that have the pool's prefix but no valid key.
    - `managers`: names of the registered managers, in the order of registration.
    """

    groups: Mapping[str, ServiceCounts]
    others: Mapping[str, ServiceCounts]
    managers: tuple[str, ...]


class Services:
    """The services of a pool at a broker."""

    def __init__(self, config: PoolConfig) -> None:
        self._pool: Final = config.pool.name
        self._prefix: Final = prefix_of(self._pool).encode()
        self._client: Final = AsyncClient(config.broker.url, timeout=config.broker.timeout_s)

    async def fetch(self) -> ServiceListing:
        """Poll the broker. Raises `CallError` if it does not answer, and `RemoteViolation` if it
        does not support listings."""
        reply = await self._client.call(self._prefix, service=_UNDER)
        if reply.body == _UNKNOWN:
            raise RemoteViolation(
                f"the broker does not support {_UNDER}; use a current `requite broker`"
            )
        try:
            return read_listing(json.loads(reply.body), self._pool)
        except (ValueError, TypeError, KeyError) as error:
            raise RemoteViolation(
                f"malformed reply of {_UNDER}: {reply.body[:40]!r}: {error!r}"
            ) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def read_listing(rows: list[dict[str, Any]], pool: str) -> ServiceListing:
    """Parse the rows of `mmi.under`. Raises `ValueError`, `TypeError` or `KeyError`."""
    groups, others = {}, {}
    managers: tuple[str, ...] = ()
    of_managers = managers_of(pool)
    for row in rows:
        name = str(row["service"])
        if name == of_managers:
            managers = tuple(map(str, row["workers"]))
            continue
        counts = (int(row["queued"]), int(row["in_progress"]), int(row["accepted"]))
        seen = ServiceCounts(*counts, workers=len(row["workers"]))
        key = _key_of(pool, name)
        if key is None or "\0" in key:  # no environment variable can hold it
            others[name] = seen
        else:
            groups[key] = seen
    return ServiceListing(groups, others, managers)
