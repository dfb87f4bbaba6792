"""`titanic.request`: accepting requests. The hot path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.engine import Finished
from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.copying import Copying
from requite.protocols.titanic.core import RECORD_SIZE_MAX, Core
from requite.protocols.titanic.requests import CLOSED, DurableRequest, Owner
from requite.protocols.titanic.tickets import ForRepeat
from requite.protocols.titanic.wire import ERROR, OK, UNKNOWN, encode_ticket
from requite.request import Status

_OTHER: Final = "this key was used for another request"


class Intake:
    """Accepts requests; those of one turn are stored with one `Store`."""

    def __init__(self, core: Core, copying: Copying) -> None:
        self.is_closed = False  # draining
        self._core = core
        self._copying = copying

    def ask(
        self,
        token: Any,
        frames: Sequence[bytes],
        key: bytes,
        owner_name: bytes,
        now: float,
        trace: bytes = b"",
    ) -> None:
        """Accept a request, unless one of its owner with its key was accepted before."""
        core = self._core
        owner = core.register.owner(owner_name)
        if key and not core.is_superseded and self._is_known(token, owner, key, frames):
            return
        refused = self._refusal(owner)
        if refused:
            core.refuse(token, ERROR, refused)
            return
        service, body = frames[0] if frames else b"", list(frames[1:]) or [b""]
        try:
            lane = core.dispatcher.lane(service)
        except RemoteViolation as violation:
            core.refuse(token, UNKNOWN, str(violation))
            return
        uuid = core.new_uuid()
        record = records.encode_submitted(uuid, core.now_us, service, key, body, owner_name, trace)
        if len(record) > RECORD_SIZE_MAX:
            core.dispatcher.maybe_drop(lane, now)
            core.refuse(
                token, UNKNOWN, f"the request has more than {RECORD_SIZE_MAX} bytes, the maximum"
            )
            return
        request = DurableRequest(uuid, owner, lane, key, core.now_us)
        request.frames = body
        request.trace = trace
        request.size = sum(map(len, body))
        request.waiting = [token]
        lane.open += 1
        core.register.add(request)
        core.submissions.append(request)
        core.submitted.append(record)

    def stored(self, requests: list[DurableRequest], locations: Sequence[Any]) -> None:
        """Answer the submitters with tickets, and queue the requests."""
        core = self._core
        emit = self._copying.emit_at(locations) or core.emit
        enqueue, keep = core.dispatcher.enqueue, core.cache.keep_request
        for request, location in zip(requests, locations, strict=True):
            request.location = location
            answer = (OK, encode_ticket(request.uuid))
            for token in request.waiting or ():
                emit(Finished(token, answer, Status.OK))
            request.waiting = None
            keep(request)
            enqueue(request, request.lane)  # type: ignore[arg-type]
        if core.policy.notes or core.policy.notes_traces:
            for request in requests:
                core.note("submitted", request)

    def failed(self, requests: list[DurableRequest], error: StorageError, now: float) -> None:
        """Refuse requests that could not be stored. After `LogFailed` they may still be on the
        disk, where the next process finds them; clients that retry should use a key."""
        core = self._core
        for request in requests:
            for token in request.waiting or ():
                core.not_stored(token, error)
            request.waiting = None
            request.state = CLOSED
            core.register.remove(request)
            core.leave_lane(request, now)

    def _is_known(self, token: Any, owner: Owner, key: bytes, frames: Sequence[bytes]) -> bool:
        """Answer a submission whose key is known, now or once it is stored; return False if the key
        is new."""
        core = self._core
        uuid = core.register.uuid_of(owner.name, key)
        if uuid is None:
            return False
        request = core.register.find(uuid)
        if request is None:
            core.answer(token, OK, encode_ticket(uuid))
            return True
        body = list(frames[1:]) or [b""]
        if not _may_be(request, frames[0] if frames else b"", body):
            core.refuse(token, UNKNOWN, _OTHER)
        elif request.waiting is not None:
            request.waiting.append(token)  # being stored
        elif request.frames is None and request.location is not None:
            core.load(ForRepeat(token, request, body), request.location)
        else:
            self._answer_again(token, request)
        return True

    def loaded(self, repeat: ForRepeat, frames: Sequence[bytes]) -> None:
        """Answer a submission whose key is known, with the body of the first one, which was read
        from the log."""
        if list(frames) == repeat.body:
            self._answer_again(repeat.token, repeat.request)
        else:
            self._core.refuse(repeat.token, UNKNOWN, _OTHER)

    def _answer_again(self, token: Any, request: DurableRequest) -> None:
        if not self._copying.holds(token, request):
            self._core.answer(token, OK, encode_ticket(request.uuid))

    def _refusal(self, owner: Owner) -> str:
        """Why requests of an owner cannot be accepted now; "" if they can."""
        core = self._core
        if core.failure is not None:
            return f"the store has failed: {core.failure}"
        if self.is_closed:
            return "shutting down"
        if core.is_superseded:
            return f"{core.why_inactive}; submit to the promoted Titanic"
        if core.is_replica:
            return "this is a replica, which accepts requests only after it is promoted"
        if len(core.register) >= core.policy.requests_max:
            return f"the limit of {len(core.register)} stored requests is reached"
        return (owner.name and core.policy.exceeded_by(owner)) or self._copying.refusal


def _may_be(request: DurableRequest, service: bytes, body: list[bytes]) -> bool:
    """Whether a request may have this service and body, as far as is known without its record."""
    if request.lane is not None and request.lane.name != service:
        return False
    return request.size == sum(map(len, body)) and request.frames in (None, body)
