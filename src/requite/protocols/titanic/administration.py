"""`titanic.list`, `.stats`, `.show`, `.retry`: for operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic import listing, records
from requite.protocols.titanic.attempts import Attempts
from requite.protocols.titanic.core import Core, TitanicSnapshot
from requite.protocols.titanic.requests import POISONED, Kept
from requite.protocols.titanic.tickets import ForShow
from requite.protocols.titanic.wire import ERROR, OK, UNKNOWN


class Administration:
    """Tells of requests, and has those that were given up tried again."""

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

    def list_page(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        """Answer with a page of the list."""
        try:
            question = listing.decode_question(frames)
        except RemoteViolation as violation:
            self._core.refuse(token, UNKNOWN, str(violation))
            return
        self._core.answer(token, OK, *listing.page(self._core.register, question))

    def stats(self, token: Any, _frames: Sequence[bytes], _now: float) -> None:
        """Answer with counts."""
        self._core.answer(token, OK, listing.stats(self._snapshot(), self._facts()))

    def show(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        """Answer with all there is of one request."""
        kept = self._core.find(token, frames)
        if kept is not None:
            self._show_next(ForShow(token, kept))

    def _show_next(self, ticket: ForShow) -> None:
        """Collect what is to be shown: the request's frames, then those of the reply."""
        token, kept, frames = ticket
        if frames is None:
            if kept.frames is None and kept.place is not None:
                self._core.load(ticket, kept.place)
                return
            frames = list(kept.frames or ())
        if kept.reply is None and kept.reply_place is not None:
            self._core.load(ForShow(token, kept, frames), kept.reply_place)
        else:
            self._tell(ticket, frames, kept.reply or ())

    def loaded(self, ticket: ForShow, frames: list[bytes]) -> None:
        """Go on with what was read."""
        if ticket.frames is None:
            self._show_next(ForShow(ticket.token, ticket.kept, frames))
        else:
            self._tell(ticket, ticket.frames, frames)

    def _tell(self, ticket: ForShow, request: Sequence[bytes], reply: Sequence[bytes]) -> None:
        line = listing.details(ticket.kept, request_frames=len(request), reply_frames=len(reply))
        self._core.answer(ticket.token, OK, line, *request, *reply)

    def retry(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        """Have a request tried again that was given up."""
        core = self._core
        kept = core.find(token, frames)
        if kept is None:
            return
        if core.bystander:
            core.refuse(token, ERROR, f"{core.bystander}: ask where it was accepted")
        elif kept.state is not POISONED or kept.place is None or kept.closing is not None:
            core.refuse(token, UNKNOWN, f"the request is not poisoned, but {kept.state.value}")
        else:
            record = records.encode_tried(kept.uuid, core.now_us, 0, False, "")
            core.enter(record, (token, kept), self._try_again, self._not_tried_again)

    def _try_again(self, what: tuple[Any, Kept], place: Any, now: float) -> None:
        token, kept = what
        self._attempts.try_again(kept, place, now)
        self._core.answer(token, OK)

    def _not_tried_again(self, what: tuple[Any, Kept], error: StorageError, _now: float) -> None:
        self._core.not_stored(what[0], error)
