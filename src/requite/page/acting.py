"""`Acting`: does what visitors of the page ask for, once they have confirmed it.

GET /acts/VERB?of=NAME     what the act means, and a form that asks for it; changes nothing
POST /acts/VERB            do it; the form has `of`, and may have `from` and `reason`. Of a switch,
                           `of` is the epoch of the pair for which it was asked
GET /stored                stored requests that are poisoned

The broker gets the requests that `requite admin` and `requite titanic` send, from a client in its
own process, for the user who visits the page. So it checks the right of that user, and journals
the act. A form of another page is refused: browsers name the page in `Origin`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from requite.engine import Submit
from requite.errors import CallError, CallTimeout, Denied, LocalViolation, PairFailed
from requite.metrics.watched import BrokerReader
from requite.page.acts import ACTS, SWITCH, Act, may, way_back, words
from requite.page.rendering import answer, text
from requite.principal import Principal
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.wire import LIST, RETRY, STATUSES, UNKNOWN, decode_status
from requite.request import Reply
from requite.shell import clock
from requite.shell.aio import AioShell
from requite.titanic.endpoint import endpoint_inside
from requite.titanic.services import dispatching
from requite.transport.address import InprocAddress

FORM_SIZE_MAX: Final = 4096
"""Bytes of the fields of a form."""

STORED_MAX: Final = 200
"""Stored requests that are shown."""

_ASKED_MAX: Final = 64  # requests of visitors at a time
_TIMEOUT_S: Final = 5.0
_FORM: Final = "application/x-www-form-urlencoded"
_SAME: Final = "same-origin"
_OK: Final = STATUSES[0]


class BrokerToOperate(BrokerReader, Protocol):
    """What the acts need of a broker."""

    async def listen_inside(self) -> InprocAddress: ...
    def switch_pair(self, principal: Principal) -> None: ...
    def deny_switch(self, principal: Principal) -> None: ...


class _Trouble(Exception):
    """An act that was not done: an answer with this status, title and texts."""

    def __init__(self, status: int, title: str, what: str, remedy: str) -> None:
        super().__init__(title)
        self.status = status
        self.what = what
        self.remedy = remedy


class Acting:
    """Answers the requests for acts at `broker`, until `close`."""

    def __init__(self, broker: BrokerToOperate) -> None:
        self._broker: Final = broker
        self._shell: AioShell | None = None
        self._connecting: Final = asyncio.Lock()

    async def close(self) -> None:
        """Disconnect from the broker."""
        if self._shell is not None:
            await self._shell.close()

    # --- answers ----------------------------------------------------------------------------------
    async def ask(self, request: Request, principal: Principal) -> Response:
        """Answer GET /acts/VERB: ask whether to do it."""
        verb, query = request.path_params["verb"], request.query_params
        of, service = query.get("of", ""), query.get("from", "")
        try:
            act = _find(verb, of)
            if not may(principal, act):
                raise _lacks(principal, act)
            if verb == SWITCH:
                of = self._epoch()
        except _Trouble as trouble:
            return _told(trouble)
        values = {
            "act": act,
            "verb": verb,
            "of": of,
            "service": service,
            "title": words(act.title, of),
            "about": act.about,
            "back": way_back(verb, of, service),
        }
        return answer("act.html", values)

    async def perform(self, request: Request, principal: Principal) -> Response:
        """Answer POST /acts/VERB: do it."""
        verb = request.path_params["verb"]
        try:
            _check_origin(request)
            fields = await _fields(request)
            of, service = fields.get("of", ""), fields.get("from", "")
            act = _find(verb, of)
            count = await self._perform(verb, act, of, fields.get("reason", ""), principal)
        except _Trouble as trouble:
            return _told(trouble)
        values = {
            "title": f"{act.button}: done",
            "what": words(act.done, of, count),
            "back": way_back(verb, of, service),
        }
        return answer("done.html", values)

    async def stored(self, _request: Request, principal: Principal) -> Response:
        """Answer GET /stored: the poisoned requests."""
        try:
            if not may(principal, ACTS["retry"]):
                raise _lacks(principal, ACTS["retry"])
            frames = await self._titanic(LIST, [b"", b"%d" % STORED_MAX, b"poisoned"], principal)
        except _Trouble as trouble:
            return _told(trouble)
        requests = [_shown(json.loads(line)) for line in frames[0].splitlines()]
        values = {"requests": requests, "has_more": bool(frames[1])}
        return answer("stored.html", values)

    # --- acts -------------------------------------------------------------------------------------
    async def _perform(
        self, verb: str, act: Act, of: str, reason: str, principal: Principal
    ) -> object:
        """Do it, and return the number in the broker's answer."""
        if verb == SWITCH:
            self._switch(act, of, principal)
            return ""
        if act.service == RETRY:
            await self._titanic(RETRY, [of.encode()], principal)
            return ""
        frames = [of.encode(), *([reason.encode()] if reason else [])]
        told = (await self._call(act.service, frames, principal)).body
        if told == b"404":
            raise _Trouble(
                404,
                "It does not exist any more",
                f"The broker does not know {text(of)!r} now. Nothing was changed.",
                "A service exists while it has workers or requests, and a worker while it is"
                " connected.",
            )
        ((_, count),) = json.loads(told).items()
        return count

    def _switch(self, act: Act, epoch: str, principal: Principal) -> None:
        """Switch the pair, unless it was switched since `epoch`: a form that is sent twice must not
        switch it back."""
        if not may(principal, act):
            self._broker.deny_switch(principal)
            raise _lacks(principal, act)
        if epoch != (current := self._epoch()):
            raise _Trouble(
                409,
                "The pair has been switched already",
                f"You were asked in epoch {text(epoch) or 'none'} of the pair, and it is in epoch"
                f" {current} now. Nothing was changed.",
                "The page of the broker shows which one is active.",
            )
        try:
            self._broker.switch_pair(principal)
        except (LocalViolation, PairFailed) as refusal:
            raise _Trouble(
                409,
                "The pair was not switched",
                f"{text(refusal)}. Nothing was changed.",
                "requite pair status shows what each server knows of the other.",
            ) from refusal

    def _epoch(self) -> str:
        """Return the epoch of the pair."""
        pair = self._broker.pair
        if pair is None:
            raise _Trouble(
                409,
                "There is no pair",
                "This broker serves alone. Nothing was changed.",
                "requite broker --pair-bind ADDRESS --peer ADDRESS makes it one of a pair.",
            )
        return str(pair.view.epoch)

    async def _titanic(
        self, service: str, frames: Sequence[bytes], principal: Principal
    ) -> Sequence[bytes]:
        """Return the frames of Titanic's answer behind its status."""
        if self._broker.titanic is None:
            raise _Trouble(
                404,
                "No stored requests",
                "This broker stores no requests.",
                "requite broker --titanic FOLDER stores them.",
            )
        reply = await self._call(service, frames, principal)
        status = decode_status(reply.frames[0])
        if status.code != _OK:
            raise _Trouble(
                409 if status.code == UNKNOWN else 503,
                "Titanic refuses it",
                f"Titanic says: {text(status.text)}. Nothing was changed.",
                "requite titanic show says what state a stored request is in.",
            )
        return reply.frames[1:]

    async def _call(self, service: str, frames: Sequence[bytes], principal: Principal) -> Reply:
        """Return the broker's answer to a request of a visitor."""
        pair = self._broker.pair
        if pair is not None and not pair.view.serves:
            raise _Trouble(
                409,
                "This broker stands by",
                "The other broker of the pair serves. Nothing was changed.",
                "Open the page of that one.",
            )
        shell = await self._client()
        decided: asyncio.Future[Reply | CallError] = asyncio.get_running_loop().create_future()
        asked = Submit(
            decided,
            service,
            frames,
            clock.now() + _TIMEOUT_S,
            idempotent=False,
            principal=principal.name.encode(),
        )
        shell.submit_soon(asked)
        outcome = await decided
        if isinstance(outcome, CallError):
            raise _failed(outcome)
        return outcome

    async def _client(self) -> AioShell:
        async with self._connecting:
            if self._shell is None:
                place = await self._broker.listen_inside()
                self._shell = dispatching(endpoint_inside(place), _ASKED_MAX, _settle)
                self._shell.start()
            return self._shell


def _settle(answered: Answered) -> None:
    decided: asyncio.Future[Reply | CallError] = answered.token
    if not decided.done():  # by the visitor, who has left
        decided.set_result(answered.outcome)


# --- requests -------------------------------------------------------------------------------------
def _find(verb: str, of: str) -> Act:
    act = ACTS.get(verb)
    if act is None:
        raise _Trouble(
            404,
            "There is no such act",
            f"The page cannot do {text(verb)!r}.",
            f"It can {', '.join(ACTS)}.",
        )
    if "{of}" in act.title and not of:
        raise _Trouble(
            400,
            "The form is incomplete",
            f"It does not say what to {verb}: the field `of` is missing. Nothing was changed.",
            "Follow the link on the page of the service.",
        )
    return act


def _check_origin(request: Request) -> None:
    """Refuse a form of another page: one of another host or port, or of no page at all. Programs
    send neither header. Behind a proxy with TLS the scheme is another one."""
    origin = request.headers.get("origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if is_foreign or request.headers.get("sec-fetch-site", _SAME) != _SAME:
        raise _Trouble(
            403,
            "A form of another page",
            "The request comes from another web page than this broker's. Nothing was changed.",
            "Open the page of the broker, and follow its links.",
        )


async def _fields(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise _malformed(415, f"it is not {_FORM}")
    received = b""
    async for chunk in request.stream():
        received += chunk
        if len(received) > FORM_SIZE_MAX:
            raise _malformed(413, f"it has more than {FORM_SIZE_MAX} bytes")
    try:
        fields = parse_qs(received.decode("ascii"), strict_parsing=bool(received), errors="strict")
    except ValueError:
        raise _malformed(400, "its fields cannot be read") from None
    return {name: values[0] for name, values in fields.items()}


def _malformed(status: int, why: str) -> _Trouble:
    return _Trouble(
        status,
        "The form is malformed",
        f"The request is not what a form of this page sends: {why}. Nothing was changed.",
        "Open the page of the broker, and follow its links.",
    )


# --- failures -------------------------------------------------------------------------------------
def _failed(error: CallError) -> _Trouble:
    if isinstance(error, Denied):
        return _Trouble(
            403,
            "You may not do this",
            f"{text(error, 400)}. Nothing was changed.",
            "requite access whoami shows what a user may do.",
        )
    if error.may_have_executed:
        changed = "It may have been done: the page shows the present state."
    else:
        changed = "Nothing was changed."
    status = 504 if isinstance(error, CallTimeout) else 503
    return _Trouble(status, "It could not be done", f"{text(error, 400)}. {changed}", "Try again.")


def _lacks(principal: Principal, act: Act) -> _Trouble:
    return _Trouble(
        403,
        "You may not do this",
        f"The user {text(principal.name)} lacks the right to it. Nothing was changed.",
        f'It is admin = ["{act.right}"] of the user in the access file.',
    )


def _told(trouble: _Trouble) -> Response:
    values = {"title": str(trouble), "what": trouble.what, "remedy": trouble.remedy}
    return answer("error.html", values, trouble.status)


def _shown(request: dict[str, Any]) -> dict[str, Any]:
    """Return a stored request with its time."""
    return {**request, "at": datetime.fromtimestamp(request["submitted_us"] / 1e6, UTC)}
