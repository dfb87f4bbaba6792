"""Titanic's requests, and the tables that index them.

    STORING ──► WAITING ◄──► SENT ──► KEEPING ──► ANSWERED
                   ▲           └────► POISONED
                   └── titanic.retry ────┘

From any state a request can become CLOSED. A client learns nothing that is not on the disk: a
request is STORING until it is stored and its ticket is sent; it is KEEPING until its reply is
stored and can be collected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple

from requite.engine import Submit
from requite.protocols.titanic.closed_keys import ClosedKeys
from requite.protocols.titanic.lines import Lines
from requite.protocols.titanic.records import StoreRole
from requite.protocols.titanic.wire import encode_ticket
from requite.value import Value

_COMPACT_FLOOR: Final = 256


class State(StrEnum):
    """State of a request."""

    STORING = "storing"
    WAITING = "waiting"
    SENT = "sent"
    KEEPING = "keeping"
    ANSWERED = "answered"
    POISONED = "poisoned"
    CLOSED = "closed"


# Module constants: a lookup through the class costs twice as much.
STORING: Final = State.STORING
WAITING: Final = State.WAITING
SENT: Final = State.SENT
KEEPING: Final = State.KEEPING
ANSWERED: Final = State.ANSWERED
POISONED: Final = State.POISONED
CLOSED: Final = State.CLOSED


class Lane:
    """The requests for one service: those in `queue` wait; `sent` counts those in flight.

    `open` counts all without a reply. Requests that are closed while they wait remain in the queue
    until their turn, or until they are the majority.
    """

    __slots__ = ("asking", "name", "open", "queue", "sent", "text", "usable_until")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.text = name.decode("utf-8", "replace")
        self.queue: Lines[Owner, DurableRequest] = Lines()
        self.sent = 0
        self.open = 0
        self.usable_until = -inf
        self.asking = False

    def __repr__(self) -> str:
        return f"<Lane {self.text}>"


class Owner:
    """A principal that has stored requests: their number, the bytes of their bodies, and how many
    are in flight (`sent`).

    `name` is its name in UTF-8, b"" for clients without a principal.
    """

    __slots__ = ("name", "requests", "sent", "size")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.requests = 0
        self.size = 0
        self.sent = 0

    def __repr__(self) -> str:
        return f"<Owner {self.text}>"

    def admits(self, name: bytes) -> bool:
        """Whether the principal of that name may use the tickets: without an owner, everybody who
        has one."""
        return self.name in (b"", name)

    @property
    def text(self) -> str:
        """The name as text."""
        return self.name.decode("utf-8", "replace")


class DurableRequest:
    """One request of `owner`. `frames` and `reply` are cached bodies, None if not cached;
    `location` and `reply_location` are the store's locations of their records.

    `serial` numbers requests in order of arrival. `waiting` are tokens to answer when SUBMITTED is
    stored, `closing` when CLOSED is (None: not closing). `asked` is the attempt in flight;
    `attempts` counts failed and answered ones. `trace` is the trace context of its submission.
    `is_negative`: the reply is the reason of a negative one.
    """

    __slots__ = (
        "answered_us",
        "asked",
        "attempts",
        "closing",
        "frames",
        "is_negative",
        "key",
        "lane",
        "location",
        "owner",
        "reason",
        "reply",
        "reply_location",
        "reply_size",
        "serial",
        "size",
        "state",
        "submitted_us",
        "trace",
        "uuid",
        "waiting",
    )

    def __init__(
        self, uuid: bytes, owner: Owner, lane: Lane | None, key: bytes, submitted_us: int
    ) -> None:
        self.uuid = uuid
        self.owner = owner
        self.lane = lane
        self.key = key
        self.submitted_us = submitted_us
        self.trace = b""
        self.serial = 0
        self.size = 0
        self.location: Any = None
        self.frames: Sequence[bytes] | None = None
        self.state = STORING
        self.asked: Submit | None = None
        self.attempts = 0
        self.reason = ""
        self.answered_us = 0
        self.reply_size = 0
        self.reply_location: Any = None
        self.reply: Sequence[bytes] | None = None
        self.is_negative = False
        self.waiting: list[Any] | None = None
        self.closing: list[Any] | None = None

    def __repr__(self) -> str:
        return f"<DurableRequest {self.ticket} {self.state.value}>"

    def resize(self, size: int, reply_size: int) -> None:
        """Set the bytes of the bodies of a registered request, which count for its owner."""
        self.owner.size += size + reply_size - self.size - self.reply_size
        self.size, self.reply_size = size, reply_size

    @property
    def ticket(self) -> str:
        """The ticket as text."""
        return encode_ticket(self.uuid).decode()


@dataclass(slots=True)
class RecoveredRequest:
    """A request that was found when a store was opened: the content and locations of its records.

    `location` is None if the SUBMITTED is damaged or missing, `reply_location` if there is no
    reply. `in_doubt`: the log is damaged behind the request, which may be answered or closed.
    """

    uuid: bytes
    service: bytes = b""
    key: bytes = b""
    submitted_us: int = 0
    size: int = 0
    location: Any = None
    attempts: int = 0
    reason: str = ""
    poisoned: bool = False
    answered_us: int = 0
    reply_size: int = 0
    reply_location: Any = None
    in_doubt: bool = False
    owner: bytes = b""
    trace: bytes = b""
    is_negative: bool = False


class ClosedKey(NamedTuple):
    """An idempotency key of a closed request of `owner`, valid until `until_us` (wall time)."""

    key: bytes
    uuid: bytes
    until_us: int
    owner: bytes = b""


@dataclass(frozen=True, slots=True)
class Recovered(Value):
    """The content of an opened store: requests in order of arrival, keys of closed requests, and
    the stored role (None: it was never a replica).

    `log_id` and `next_number` are the store's. `is_damaged`: parts of the log cannot be read, so
    requests may be missing.
    """

    requests: Sequence[RecoveredRequest] = ()
    closed_keys: Sequence[ClosedKey] = ()
    role: StoreRole | None = None
    log_id: bytes = bytes(16)
    next_number: int = 0
    is_damaged: bool = False


class Register:
    """All stored requests, by UUID, by idempotency key, by owner, and in order of arrival.

    A key belongs to the owner of its request: equal keys of two owners are two keys.
    """

    def __init__(self) -> None:
        self._by_uuid: dict[bytes, DurableRequest] = {}
        self._by_key: dict[tuple[bytes, bytes], bytes] = {}
        self._owners: dict[bytes, Owner] = {}
        self._in_order: list[DurableRequest] = []
        self._serial = 0
        self._closed_keys = ClosedKeys()

    def __len__(self) -> int:
        return len(self._by_uuid)

    def __iter__(self) -> Iterator[DurableRequest]:
        return iter(self._by_uuid.values())

    def owner(self, name: bytes) -> Owner:
        """Return the owner of that name; a new one is registered with its first request."""
        return self._owners.get(name) or Owner(name)

    def add(self, request: DurableRequest) -> None:
        """Add a new request."""
        self._serial = request.serial = self._serial + 1
        self._by_uuid[request.uuid] = request
        self._count(request)
        if request.key:
            self._by_key[request.owner.name, request.key] = request.uuid
        self._in_order.append(request)

    def name(self, request: DurableRequest, key: bytes, owner: bytes) -> None:
        """Set the key and the owner of a request."""
        if owner != request.owner.name:
            self._discount(request)
            request.owner = self.owner(owner)
            self._count(request)
        request.key = key
        if key:
            self._by_key[owner, key] = request.uuid

    def find(self, uuid: bytes) -> DurableRequest | None:
        """Return the request with that UUID, or None."""
        return self._by_uuid.get(uuid)

    def uuid_of(self, owner: bytes, key: bytes) -> bytes | None:
        """Return the UUID of the owner's request with that key, even if it is closed; None if
        unknown."""
        return self._by_key.get((owner, key))

    def remove(self, request: DurableRequest, key_until: float | None = None) -> None:
        """Remove a request; its key remains valid until `key_until`."""
        del self._by_uuid[request.uuid]
        self._discount(request)
        if request.key:
            key = (request.owner.name, request.key)
            if key_until is None:
                self._by_key.pop(key, None)
            else:
                self._closed_keys.add(*key, key_until)
        in_order = self._in_order
        if len(in_order) > _COMPACT_FLOOR and len(in_order) > 2 * len(self._by_uuid):
            by_uuid = self._by_uuid
            in_order[:] = [one for one in in_order if by_uuid.get(one.uuid) is one]

    def _count(self, request: DurableRequest) -> None:
        owner = request.owner
        owner.requests += 1
        owner.size += request.size + request.reply_size
        self._owners[owner.name] = owner

    def _discount(self, request: DurableRequest) -> None:
        owner = request.owner
        owner.requests -= 1
        owner.size -= request.size + request.reply_size
        if not owner.requests:
            del self._owners[owner.name]

    def drop_key(self, request: DurableRequest) -> None:
        """Forget the key of a request."""
        if request.key:
            self._by_key.pop((request.owner.name, request.key), None)
            request.key = b""

    def drop_closed_keys(self, owner: bytes) -> list[bytes]:
        """Forget the keys of an owner's closed requests; return the UUIDs of these requests."""
        taken = self._closed_keys.take_all(owner)
        return [uuid for key in taken if (uuid := self._forget_closed(owner, key)) is not None]

    def keep_key(self, key: ClosedKey, until: float) -> None:
        """Add the key of a closed request, valid until an instant."""
        self._by_key[key.owner, key.key] = key.uuid
        self._closed_keys.add(key.owner, key.key, until)

    def expire_keys(self, now: float) -> float | None:
        """Drop expired and surplus keys of closed requests; return when the next one expires."""
        for owner, key, _ in self._closed_keys.take(now):
            self._forget_closed(owner, key)
        return self._closed_keys.next_expiry()

    def _forget_closed(self, owner: bytes, key: bytes) -> bytes | None:
        """Forget a key, unless it is in use again; return the UUID of its closed request."""
        if self._by_key.get((owner, key)) in self._by_uuid:
            return None
        return self._by_key.pop((owner, key), None)

    def after(self, serial: int) -> Iterator[DurableRequest]:
        """Yield the requests that arrived after the one with that serial number."""
        begin = bisect_right(self._in_order, serial, key=_serial_of)
        for at in range(begin, len(self._in_order)):
            request = self._in_order[at]
            if self._by_uuid.get(request.uuid) is request:
                yield request

    @property
    def has_too_many_keys(self) -> bool:
        """Whether there are more keys of closed requests than allowed."""
        return self._closed_keys.is_beyond

    @property
    def keys(self) -> int:
        """The number of known keys."""
        return len(self._by_key)


def _serial_of(request: DurableRequest) -> int:
    return request.serial
