"""`titanic.list`, `.stats`, `.show`, `.retry`: for operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic import listing, records
from requite.protocols.titanic.attempts import Attempts
from requite.protocols.titanic.core import Core, TitanicSnapshot
from requite.protocols.titanic.requests import POISONED, DurableRequest
from requite.protocols.titanic.tickets import ForShow
from requite.protocols.titanic.wire import ERROR, OK, UNKNOWN


class Administration:
    """Lists and shows requests; retries poisoned ones."""

    def __init__(
        self,
        core: Core,
        attempts: Attempts,
        snapshot: Callable[[], TitanicSnapshot],
        facts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._core = core
        self._attempts = attempts
        self._snapshot = snapshot
        self._facts = facts

    def list_page(self, token: Any, frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Answer with a page of the list."""
        try:
            question = listing.decode_question(frames)
        except RemoteViolation as violation:
            self._core.refuse(token, UNKNOWN, str(violation))
            return
        self._core.answer(token, OK, *listing.page(self._core.register, question))

    def stats(self, token: Any, _frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Answer with counts."""
        self._core.answer(token, OK, listing.stats(self._snapshot(), self._facts()))

    def show(self, token: Any, frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Answer with the details, frames and reply of one request, whoever owns it."""
        request = self._core.find(token, frames, None)
        if request is not None:
            self._show_next(ForShow(token, request))

    def _show_next(self, ticket: ForShow) -> None:
        """Load what is not cached: the request's frames, then those of the reply; then answer."""
        token, request, frames = ticket
        if frames is None:
            if request.frames is None and request.location is not None:
                self._core.load(ticket, request.location)
                return
            frames = list(request.frames or ())
        if request.reply is None and request.reply_location is not None:
            self._core.load(ForShow(token, request, frames), request.reply_location)
        else:
            self._tell(ticket, frames, request.reply or ())

    def loaded(self, ticket: ForShow, frames: list[bytes]) -> None:
        """Continue with frames read from the log."""
        if ticket.frames is None:
            self._show_next(ForShow(ticket.token, ticket.request, frames))
        else:
            self._tell(ticket, ticket.frames, frames)

    def _tell(self, ticket: ForShow, frames: Sequence[bytes], reply: Sequence[bytes]) -> None:
        line = listing.details(ticket.request, request_frames=len(frames), reply_frames=len(reply))
        self._core.answer(ticket.token, OK, line, *frames, *reply)

    def retry(self, token: Any, frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Retry a poisoned request, for its owner."""
        core = self._core
        request = core.find(token, frames, None)
        if request is None:
            return
        if core.why_inactive:
            core.refuse(token, ERROR, f"{core.why_inactive}; send this to the active Titanic")
        elif (
            request.state is not POISONED or request.location is None or request.closing is not None
        ):
            core.refuse(token, UNKNOWN, f"the request is not poisoned, but {request.state.value}")
        else:
            owner = request.owner.name
            record = records.encode_tried(request.uuid, core.now_us, 0, False, "", owner)
            core.enter(record, (token, request), self._try_again, self._not_tried_again)

    def _try_again(self, what: tuple[Any, DurableRequest], location: Any, now: float) -> None:
        token, request = what
        self._attempts.try_again(request, location, now)
        self._core.answer(token, OK)

    def _not_tried_again(
        self, what: tuple[Any, DurableRequest], error: StorageError, _now: float
    ) -> None:
        self._core.not_stored(what[0], error)
