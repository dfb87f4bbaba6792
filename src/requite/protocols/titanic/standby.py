"""The replica: stores another Titanic's records, and dispatches nothing until it is promoted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from requite.engine import Store
from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.collecting import Collecting
from requite.protocols.titanic.copying import Copying
from requite.protocols.titanic.core import Core
from requite.protocols.titanic.replication import (
    Batch,
    decode_batch,
    encode_position,
    encode_superseded,
)
from requite.protocols.titanic.requests import (
    ANSWERED,
    POISONED,
    WAITING,
    ClosedKey,
    DurableRequest,
)
from requite.protocols.titanic.wire import ERROR, OK, UNKNOWN, refusal

_REPLICA: Final = "this is a replica"
_SUPERSEDED: Final = "superseded"
_NO_LOG: Final = bytes(16)
_UNCONFIRMED: Final = (
    "this replica was promoted before a full copy was complete: the request may have been closed"
)


class Replicated(NamedTuple):
    """The ticket of a `Store` of replicated records: one entry for each record but the last, which
    is the ROLE with the new position."""

    token: Any
    batch: Batch
    entries: Sequence[records.Entry]


class Standby:
    """The replica's side of replication; idle in a Titanic that is not a replica."""

    def __init__(self, core: Core, collecting: Collecting, copying: Copying) -> None:
        self._core = core
        self._copying = copying
        self._collecting = collecting
        self._position = (_NO_LOG, 0)
        self._followed = _NO_LOG  # the log that is copied here
        self._may_replace = False  # a full copy may replace the content: it was superseded
        self._is_storing = False
        self._is_promoting = False
        self._unconfirmed: set[bytes] | None = None  # in a full copy, not received yet

    def begin(self, role: records.StoreRole | None) -> None:
        """Take the role that is stored, or else the one of the policy."""
        core = self._core
        is_standby = core.policy.standby
        if role is not None:
            core.epoch = role.epoch
            core.is_superseded = role.superseded and not is_standby
        if role is None or role.superseded:
            core.is_replica = is_standby
            self._may_replace = role is not None and is_standby
        else:
            self._follow(role)
        core.halt(_REPLICA, core.is_replica)
        core.halt(_SUPERSEDED, core.is_superseded)

    def _follow(self, role: records.StoreRole) -> None:
        """Continue as a replica, or as a promoted one. If the log is damaged, leave the position at
        0, so that the sender starts a full copy."""
        core = self._core
        core.is_replica = role.replica
        self._followed = role.log_id
        if not (role.partial or core.is_damaged):
            self._position = (role.log_id, role.next_number)

    # --- titanic.promote --------------------------------------------------------------------------
    def promote(self, token: Any, _frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Become active: accept requests, and dispatch those that wait."""
        core = self._core
        if not core.why_inactive:
            core.answer(token, OK)
            return
        self._is_promoting = True
        role = records.StoreRole(core.now_us, False, *self._position, core.epoch + 1)
        core.enter(records.encode_role(role), token, self._promoted, self._not_promoted)

    def _promoted(self, token: Any, _location: Any, now: float) -> None:
        core = self._core
        self._is_promoting = False
        if core.why_inactive:
            core.epoch += 1
            core.is_replica = core.is_superseded = False
            self._set_aside_unconfirmed(now)
            self._copying.resume(now)
            core.halt(_REPLICA, False)
            core.halt(_SUPERSEDED, False)
        core.answer(token, OK)

    def _set_aside_unconfirmed(self, now: float) -> None:
        """Poison requests that an incomplete full copy has not confirmed; they may be closed."""
        core, gone = self._core, self._unconfirmed or set()
        self._unconfirmed = None
        found = [core.register.find(uuid) for uuid in sorted(gone)]
        waiting = [request for request in found if request is not None and request.state is WAITING]
        if waiting:
            self._collecting.attempts.set_aside(waiting, _UNCONFIRMED, now)

    def _not_promoted(self, token: Any, error: StorageError, _now: float) -> None:
        self._is_promoting = False
        self._core.not_stored(token, error)

    # --- titanic.replicate ------------------------------------------------------------------------
    def replicate(self, token: Any, frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Store a batch that begins at our position; answer with the position."""
        core = self._core
        try:
            batch = decode_batch(frames)
            if self._objects(token, batch):
                return
            entries = [records.decode(record, bodies=False) for record in batch.records]
        except RemoteViolation as violation:
            core.refuse(token, UNKNOWN, str(violation))
            return
        if self._is_storing or self._is_promoting:
            core.refuse(token, ERROR, "another batch is being stored")
        elif batch.is_begin or (batch.log_id, batch.since) == self._position:
            self._store(token, batch, entries)
        else:
            self._tell(token)

    def _objects(self, token: Any, batch: Batch) -> bool:
        """Refuse a sender that is outdated or wrong; return whether it was refused."""
        core = self._core
        if batch.epoch < core.epoch:
            text = f"a replica was promoted (epoch {core.epoch}) since epoch {batch.epoch}"
            core.answer(token, refusal(UNKNOWN, text), *encode_superseded(core.epoch))
            return True
        objection = self._objection(batch)
        if objection:
            core.refuse(token, UNKNOWN, objection)
        return bool(objection)

    def _objection(self, batch: Batch) -> str:
        """Return the reason to refuse a sender of our epoch or a later one; "" if there is none."""
        if not self._core.is_replica:
            return "this Titanic is not a replica, or was promoted"
        if batch.epoch > self._core.epoch or self._may_replace:
            return ""  # the sender was promoted: its content replaces ours
        held, (log_id, number) = len(self._core.register), self._position
        if batch.log_id != self._followed and held:
            return (
                f"this replica holds {held} requests of another log. Promote it if the other log "
                "is lost, or start it on an empty folder"
            )
        if batch.is_question and batch.log_id == log_id and batch.following < number:
            return (
                f"this replica has {number - batch.following} records that the Titanic it copies "
                "has lost. Promote it, or start it on an empty folder"
            )
        return ""

    def _store(self, token: Any, batch: Batch, entries: Sequence[records.Entry]) -> None:
        core = self._core
        if batch.is_begin:
            self._unconfirmed = {request.uuid for request in core.register}
            self._may_replace = False
        self._followed = batch.log_id
        core.epoch = batch.epoch
        to_store = [
            (entry, record)
            for entry, record in zip(entries, batch.records, strict=True)
            if not isinstance(entry, records.StoreRole)
        ]
        if not to_store and not batch.is_begin and batch.following == batch.since:
            self._tell(token)  # only a question
            return
        self._is_storing = True
        core.storing += 1
        ticket = Replicated(token, batch, [entry for entry, _ in to_store])
        core.emit(Store(ticket, [*[record for _, record in to_store], self._role(batch)]))

    def _role(self, batch: Batch) -> bytes:
        """Encode the ROLE with our position; during a full copy, position 0 and `partial`."""
        is_complete = self._unconfirmed is None or batch.is_head
        number = batch.following if is_complete else 0
        role = records.StoreRole(self._core.now_us, True, batch.log_id, number, batch.epoch)
        return records.encode_role(role._replace(partial=not is_complete))

    def stored(self, ticket: Replicated, locations: Sequence[Any], now: float) -> None:
        """Apply stored records to the tables, and answer the sender."""
        self._is_storing = False
        batch = ticket.batch
        for entry, location, record in zip(ticket.entries, locations, _bodies(batch), strict=False):
            self._take(entry, location, record, now)
        self._position = (batch.log_id, batch.following)
        if batch.is_head and self._unconfirmed is not None:
            self._close_unconfirmed()
            self._collecting.attempts.release_damaged()
        self._tell(ticket.token)

    def failed(self, ticket: Replicated, error: StorageError) -> None:
        """Answer that a batch could not be stored."""
        self._is_storing = False
        self._core.not_stored(ticket.token, error)

    def _tell(self, token: Any) -> None:
        self._core.answer(token, OK, encode_position(*self._position))

    def _close_unconfirmed(self) -> None:
        """Close the requests that a complete full copy did not contain: they were closed there."""
        gone, self._unconfirmed = self._unconfirmed or set(), None
        if gone:
            text = f"closes {len(gone)} requests that the Titanic it copies does not have"
            self._core.warn("replica", text)
        for uuid in sorted(gone):
            request = self._core.register.find(uuid)
            if request is not None and request.closing is None:
                self._collecting.begin_closing(request, [], expired=False)

    # --- one record -------------------------------------------------------------------------------
    def _take(self, entry: records.Entry, location: Any, record: bytes, now: float) -> None:
        core = self._core
        assert not isinstance(entry, records.StoreRole)
        request = core.register.find(entry.uuid)
        if isinstance(entry, records.Closed):
            self._closed(entry, request, now)
            return
        if request is None:
            request = self._new(entry)
        if self._unconfirmed is not None:
            self._unconfirmed.discard(entry.uuid)
        if isinstance(entry, records.Submitted):
            self._submitted(entry, request, location, records.body_size(record), now)
        elif isinstance(entry, records.Answered):
            self._answered(entry, request, location, records.body_size(record), now)
        else:
            self._tried(entry, request, now)

    def _new(self, entry: records.Submitted | records.Answered | records.Tried) -> DurableRequest:
        """Add an unknown request. Compaction may reorder its records."""
        core = self._core
        service, key = b"", b""
        if isinstance(entry, records.Submitted):
            service, key = entry.service, entry.key
        lane = core.dispatcher.stored_lane(service)
        owner = core.register.owner(entry.owner)
        request = DurableRequest(entry.uuid, owner, lane, key, entry.at_us)
        core.register.add(request)
        lane.open += 1
        core.dispatcher.enqueue(request, lane)
        return request

    def _submitted(
        self,
        entry: records.Submitted,
        request: DurableRequest,
        location: Any,
        size: int,
        now: float,
    ) -> None:
        core = self._core
        request.location, request.submitted_us = location, entry.at_us
        request.trace = entry.trace
        request.resize(size, request.reply_size)
        if core.lane_of(request).name == entry.service:
            return
        lane = core.dispatcher.stored_lane(entry.service)
        core.register.name(request, entry.key, entry.owner)
        if request.state is WAITING:
            core.leave_lane(request, now)
            lane.open += 1
            core.dispatcher.enqueue(request, lane)
        request.lane = lane

    def _answered(
        self, entry: records.Answered, request: DurableRequest, location: Any, size: int, now: float
    ) -> None:
        core = self._core
        if request.state is WAITING:
            core.timers.clear(request)
            request.state = ANSWERED
            core.leave_lane(request, now)
        elif request.state is POISONED:
            core.poisoned -= 1
        core.answered += request.reply_location is None
        request.state = ANSWERED
        core.cache.drop_reply(request)
        request.reply_location = location
        request.resize(request.size, size)
        request.attempts, request.answered_us = entry.attempts, entry.at_us
        request.is_negative = entry.is_negative
        self._collecting.expire_later(request, now)

    def _tried(self, entry: records.Tried, request: DurableRequest, now: float) -> None:
        core = self._core
        request.attempts, request.reason = entry.attempts, entry.reason
        if entry.poisoned and request.state is WAITING:
            request.state = POISONED
            core.poisoned += 1
            core.leave_lane(request, now)
        elif not entry.poisoned and request.state is POISONED:
            core.poisoned -= 1
            core.dispatcher.enqueue(request, core.enter_lane(request))

    def _closed(self, entry: records.Closed, request: DurableRequest | None, now: float) -> None:
        core = self._core
        until = entry.key_until_us / 1e6 - core.epoch_s
        if self._unconfirmed is not None:
            self._unconfirmed.discard(entry.uuid)
        if request is not None:
            self._collecting.forget(request, now, until)
        elif entry.key:
            key = ClosedKey(entry.key, entry.uuid, entry.key_until_us, entry.owner)
            core.register.keep_key(key, until)


def _bodies(batch: Batch) -> list[bytes]:
    """Return the records of a batch without ROLE records."""
    return [record for record in batch.records if record[0] != records.ROLE]
