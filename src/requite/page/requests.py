"""The pages of requests: the story of one, and those that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from requite.errors import StorageError
from requite.page.charts import Moment, timeline
from requite.page.rendering import HEADERS, answer, moment, request_url, text
from requite.story.searcher import Searcher
from requite.story.vocabulary import OK, Verdict

SPANS: Final[Mapping[str, float]] = {
    "1m": 60.0,
    "10m": 600.0,
    "1h": 3600.0,
    "6h": 6 * 3600.0,
    "1d": 86_400.0,
    "7d": 7 * 86_400.0,
}
"""How far back failures are searched, by the value in an address."""

SHOWN_MAX: Final = 100
_USUAL_SPAN: Final = "10m"
_REASON_SIZE: Final = 400
_ID: Final = re.compile(r"[0-9a-f]{32}")
_GOOD: Final = {Verdict.EXACTLY_ONE.value, Verdict.IN_FLIGHT.value}
_STYLES: Final = {"client": "first", "broker": "second", "worker": "third"}


class Requests:
    """Answers what visitors ask about requests. `searcher` None: the broker has no journal."""

    def __init__(self, searcher: Searcher | None) -> None:
        self._searcher: Final = searcher

    async def search(self, request: Request) -> Response:
        """Answer /requests: a form, failed requests, or the way to the request with an ID."""
        query = request.query_params
        if "id" in query:
            request_id = _id_in(query["id"])
            if request_id is None:
                return _form(400, text(query["id"]))
            return RedirectResponse(request_url(request_id), 303, HEADERS)
        if self._searcher is None:
            return _no_journal()
        if not query.get("failed"):
            return _form()
        since = query.get("since", _USUAL_SPAN)
        if since not in SPANS:
            return _unknown_span(since)
        try:
            found = await self._searcher.failures(SPANS[since], SHOWN_MAX)
        except StorageError as error:
            return _cannot_search(error)
        return _failed(found, since)

    async def story(self, request: Request) -> Response:
        """Answer /requests/ID."""
        given = request.path_params["id"]
        request_id = _id_in(given)
        if request_id is None:
            return _form(404, text(given))
        if self._searcher is None:
            return _no_journal()
        try:
            story = await self._searcher.tell(request_id)
        except StorageError as error:
            return _cannot_search(error)
        return _told(story, request_id)


def _told(story: Mapping[str, Any], request_id: str) -> Response:
    if not story["found"]:
        return answer("unknown.html", {"request_id": request_id, **_cover(story["logs"])}, 404)
    values = {
        "request_id": request_id,
        "story": story,
        "style": _style_of(story),
        "steps": _steps(story),
        "steps_more": story["steps_more"],
        "events": story["events"],
        "events_more": story["events_more"],
        "timeline": timeline(_moments(story)),
    }
    return answer("request.html", values)


def _cover(logs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return when the first and the last event of the logs are; "" if there are none."""
    firsts = [each["first"] for each in logs if each["first"]]
    lasts = [each["last"] for each in logs if each["last"]]
    if not firsts or not lasts:
        return {"first": "", "last": ""}
    first, last = datetime.fromisoformat(min(firsts)), datetime.fromisoformat(max(lasts))
    return {"first": moment(first), "last": moment(last)}


def _style_of(story: Mapping[str, Any]) -> str:
    """Return the style of a verdict; a request may end as it should with an error, too."""
    if story["verdict"] not in _GOOD or story["contradictions"]:
        return "bad"
    end = story["end"]
    return "note" if end is not None and end.get("outcome") != OK else "good"


def _failed(found: Mapping[str, Any], since: str) -> Response:
    failures = [{**each, "at": datetime.fromisoformat(each["at"])} for each in found["failures"]]
    values = {
        "failures": failures,
        "is_empty": found["until"] is None,
        "has_more": found["has_more"],
        "since": since,
        "spans": list(SPANS),
    }
    return answer("failures.html", values)


def _id_in(given: str) -> str | None:
    """Return the ID of a request as journals have it; None if this is none."""
    plain = given.strip().lower()
    return plain if _ID.fullmatch(plain) else None


def _steps(story: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a story: when, the date only if it is another one than before, and how
    long after the first."""
    shown: list[dict[str, Any]] = []
    first = day = None
    for each in story["steps"]:
        at = each["ts"] and datetime.fromisoformat(each["ts"])
        first = first or at
        time = moment(at)
        if at and at.date() == day:
            time = time.partition(" ")[2]
        day = at.date() if at else day
        since_s = (at - first).total_seconds() if at and first else None
        style = _STYLES.get(each["who"].partition(" ")[0], "")
        shown.append({**each, "at": at, "time": time, "since_s": since_s, "style": style})
    return shown


def _moments(story: Mapping[str, Any]) -> list[Moment]:
    return [
        Moment(each["at"], each["who"], each["what"], each["style"])
        for each in _steps(story)
        if each["at"]
    ]


def _form(status: int = 200, wrong: str | None = None) -> Response:
    return answer("requests.html", {"wrong": wrong, "spans": list(SPANS)}, status)


def _no_journal() -> Response:
    return answer("nojournal.html", {}, 404)


def _cannot_search(error: StorageError) -> Response:
    trouble = {
        "title": "The search failed",
        "what": f"{text(error, _REASON_SIZE)}.",
        "remedy": "Load this page again; the log of the broker may say more.",
    }
    return answer("error.html", trouble, 503, {"Retry-After": "2"})


def _unknown_span(since: str) -> Response:
    trouble = {
        "title": "No such time",
        "what": f"{text(since)!r} is not a time that failures can be searched for.",
        "remedy": f"In the address, since= is one of {', '.join(SPANS)}.",
    }
    return answer("error.html", trouble, 400)
