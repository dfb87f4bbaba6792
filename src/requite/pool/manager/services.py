"""What a broker of MDP tells a manager: the services of its pool, and who else manages it."""

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
# The same names come with every look, and are taken apart once.
_key_of: Final = lru_cache(maxsize=10_000)(key_of)


@dataclass(frozen=True, slots=True)
class ServiceListing:
    """What a broker knows of a pool. `groups`: its services, by key; `others`: services whose names
    begin like those of the pool and are no group's; `managers`: the names of the managers that have
    registered, first come first."""

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
        """Ask the broker. Raises `CallError` where none answers, and `RemoteViolation` for one that
        does not know how."""
        reply = await self._client.call(self._prefix, service=_UNDER)
        if reply.body == _UNKNOWN:
            raise RemoteViolation(
                f"the broker has no {_UNDER}: it is not requite's, or an older one"
            )
        try:
            return read_listing(json.loads(reply.body), self._pool)
        except (ValueError, TypeError, KeyError) as error:
            raise RemoteViolation(f"{_UNDER} answered {reply.body[:40]!r}: {error!r}") from error

    async def close(self) -> None:
        """Leave."""
        await self._client.close()


def read_listing(rows: list[dict[str, Any]], pool: str) -> ServiceListing:
    """Read the rows of `mmi.under`. Raises `ValueError`, `TypeError` or `KeyError` for others."""
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
        if key is None or "\0" in key:  # no environment can hold it
            others[name] = seen
        else:
            groups[key] = seen
    return ServiceListing(groups, others, managers)
