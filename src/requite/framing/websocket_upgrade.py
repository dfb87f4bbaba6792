"""From HTTP to WebSocket: the opening handshake of either side (RFC 6455, section 4), with wsproto.

        GET /path HTTP/1.1                              HTTP/1.1 101 Switching Protocols
        Sec-WebSocket-Protocol: rep.sp.nanomsg.org      Sec-WebSocket-Protocol: rep.sp.nanomsg.org
        ...                                             ...

The subprotocol names the server's role (sp-websocket-mapping-01), and the server repeats it. SP
endpoints exchange nothing else about their types. A server that is asked for another subprotocol,
or for none, refuses with an HTTP error whose body has the reason, as nng and mangos do. That is
clearer than the code 1002 of the mapping, and comes earlier.

This module imports wsproto; the first WebSocket imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any, Final, NoReturn, cast

from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, Event, RejectConnection, RejectData, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import foreign
from requite.framing.web_hosts import (
    canonical,
    canonical_origin,
    host_of,
    host_of_origin,
    needs_no_resolver,
)

# The limit of h11 for an incomplete header section. SP endpoints need some 200 bytes; the rest is
# for a browser's cookies and the fields that proxies add.
HEADER_SIZE_MAX: Final = 16 << 10
_TARGET: Final = re.compile(r"/[!-~]*")
# RFC 9112, section 3.2.2: the part before the path in the absolute-form of a target.
_ABSOLUTE: Final = re.compile(r"(?:https?|wss?)://[^/?]*", re.I)
_END_OF_HEADER: Final = re.compile(rb"\n\r?\n")  # as lenient as h11

_MAY_BEGIN_A_REQUEST: Final = re.compile(rb"[A-Z]{0,20}(?: |\Z)")
_ANSWER: Final = b"HTTP/1."
# RFC 9112, sections 2 to 5: a request line, and fields without line folding.
_REQUEST: Final = re.compile(
    rb"([A-Z]+) ([!-~]+) HTTP/1\.([01])\r?\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n]*\r?\n)*)\r?\n"
)
_ASKS_FOR_A_WEBSOCKET: Final = re.compile(rb"^upgrade:[^\r\n]*\bwebsocket\b", re.I | re.M)

_FIELDS: Final = {
    405: ("Allow: GET", "Connection: close"),
    426: ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Connection: close, Upgrade"),
}
# The only refusal of wsproto with 426; its own message is about a missing header.
_ANOTHER_VERSION: Final = "this endpoint speaks WebSocket version 13 (RFC 6455) only"
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}

# The size of a refusal's body that is read, and shown.
_EXPLANATION_SIZE_MAX: Final = 500
_QUOTED_SIZE_MAX: Final = 100
_BEGINNING_SIZE_MAX: Final = 20


class _Head:
    """Collects a header section up to its empty line, with a limit and a check of its beginning."""

    def __init__(self, may_begin: Callable[[bytes], object], expected: str) -> None:
        self.data = b""
        self._may_begin = may_begin
        self._expected = expected

    def add(self, chunk: bytes) -> bytes | None:
        """Return the bytes after the header section, which is then in `data`; None: incomplete.

        Raises `RemoteViolation` for a section that is too large or cannot be one.
        """
        searched = max(0, len(self.data) - 2)
        data = self.data = self.data + chunk
        if not self._may_begin(data):
            came = foreign.name_of(data) or _shown(data[:_BEGINNING_SIZE_MAX])
            raise RemoteViolation(f"expected {self._expected}, but received {came}")
        found = _END_OF_HEADER.search(data, searched)
        if (found.end() if found else len(data)) > HEADER_SIZE_MAX:
            raise RemoteViolation(f"the HTTP header has more than {HEADER_SIZE_MAX} bytes")
        if found is None:
            return None
        self.data = data[: found.end()]
        return data[found.end() :]


class ServerUpgrade:
    """The server: answers requests for `subprotocol` at `path` ("": at any path).

    Browsers send the `Origin` of the page that opens a WebSocket; other clients usually send none.
    Pages of `origins` are accepted, and those of the server's own host: the host that the client
    requests, if that is an IP address, localhost or `own_host`. Another name may be one that its
    owner has pointed to this machine, for pages that attack it (DNS rebinding).

    `say` is called with the bytes to send. A refused request is answered before `receive` raises:

    | status | for |
    |---|---|
    | 404 | any request at another path |
    | 426 | plain HTTP, or another version of WebSocket than 13 (RFC 9110, section 15.5.22) |
    | 405 | a WebSocket, by another method than GET |
    | 403 | a WebSocket, by a page of another origin |
    | 400 | invalid HTTP, an invalid opening handshake, or another subprotocol |
    """

    def __init__(
        self,
        subprotocol: str,
        path: str,
        say: Callable[[bytes], None],
        *,
        own_host: str = "",
        origins: Collection[str] = (),
    ) -> None:
        self._subprotocol = subprotocol
        self._path = path
        self._own_host = canonical(own_host)
        self._origins = origins
        self._say = say
        self._head = _Head(_MAY_BEGIN_A_REQUEST.match, "an HTTP request")
        self._handshake = H11Handshake(ConnectionType.SERVER)

    def opening(self) -> bytes:
        """Return nothing: the client sends first."""
        return b""

    def receive(self, chunk: bytes) -> bytes | None:
        """Take the next bytes; return those behind the upgrade, or None while it is not through."""
        try:
            rest = self._head.add(chunk)
        except RemoteViolation as violation:
            self._refuse(str(violation))
        if rest is None:
            return None
        self._judge_request()
        self._judge_upgrade()
        self._say(self._handshake.send(AcceptConnection(subprotocol=self._subprotocol)))
        return rest

    def at_end(self) -> NoReturn:
        """Say what the end of the stream means here."""
        raise RemoteViolation("the peer closed the connection before its HTTP request was complete")

    def _judge_request(self) -> None:
        """Refuse a request for anything but a WebSocket at this path."""
        request = _REQUEST.fullmatch(self._head.data)
        if request is None:
            self._refuse("malformed HTTP request")
        method, target, minor, section = request.groups()
        path = _path_of(target.decode())
        is_head = method == b"HEAD"
        if self._path not in ("", path):
            self._refuse(f"no SP endpoint at {quote(path)}", 404, is_head=is_head)
        if minor == b"0" or _ASKS_FOR_A_WEBSOCKET.search(section) is None:  # 1.0 has no upgrades
            self._refuse(
                "this is an SP endpoint over WebSocket: request an upgrade with HTTP/1.1 and"
                f" the subprotocol {self._subprotocol}",
                426,
                is_head=is_head,
            )
        if method != b"GET":
            reason = f"a WebSocket is opened with GET, not {method.decode()}"
            self._refuse(reason, 405, is_head=is_head)

    def _judge_upgrade(self) -> None:
        """Refuse an opening handshake that is malformed or for another subprotocol."""
        try:
            self._handshake.receive_data(self._head.data)
            [request] = self._handshake.events()
        except RemoteProtocolError as error:
            hint = error.event_hint
            status = hint.status_code if isinstance(hint, RejectConnection) else 400
            self._refuse(_ANOTHER_VERSION if status == 426 else str(error), status)
        except ValueError:  # a header that is not ASCII, or a host that is not a name
            self._refuse("malformed HTTP header")
        assert isinstance(request, Request)
        for name, value in request.extra_headers:
            if name == b"origin":
                self._judge_origin(value.decode(errors="replace"), request.host)
        if self._subprotocol not in request.subprotocols:
            asked = quote(", ".join(request.subprotocols)) or "none"
            self._refuse(
                f"the request names the subprotocol {asked}; this endpoint requires"
                f" {self._subprotocol}"
            )

    def _judge_origin(self, origin: str, host: str) -> None:
        """Refuse pages of other origins."""
        if canonical_origin(origin) in self._origins:
            return
        own = host_of(host)
        is_known = own is not None and (own == self._own_host or needs_no_resolver(own))
        if not is_known or host_of_origin(origin) != own:
            text = f"pages of origin {quote(origin) or 'none'} may not connect to this SP endpoint"
            self._refuse(f"{text}; its URL can list them (origins=...)", 403)

    def _refuse(self, reason: str, status: int = 400, *, is_head: bool = False) -> NoReturn:
        """Answer with an HTTP error that has the reason, and raise. HEAD gets no body."""
        body = reason.encode() + b"\n"
        fields = [
            f"HTTP/1.1 {status} {_PHRASES[status]}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            *_FIELDS.get(status, ("Connection: close",)),
        ]
        self._say("\r\n".join([*fields, "", ""]).encode() + (b"" if is_head else body))
        raise RemoteViolation(f"refused an HTTP request with {status}: {reason}")


class ClientUpgrade:
    """The client: requests `path` from the server at `host` (as in a URL, with the port)."""

    def __init__(self, subprotocol: str, host: str, path: str) -> None:
        self._subprotocol = subprotocol
        self._head = _Head(_may_begin_an_answer, "an HTTP/1 response")
        self._handshake = H11Handshake(ConnectionType.CLIENT)
        self._refusal = ""  # the HTTP status, after a refusal
        self._explanation = b""
        self._request = self._handshake.send(_request(host, path or "/", subprotocol))

    def opening(self) -> bytes:
        """Return the request."""
        return self._request

    def receive(self, chunk: bytes) -> bytes | None:
        """Take the next bytes; return those behind the upgrade, or None while it is not through.

        Raises `RemoteViolation` with the server's reason if it refuses.
        """
        if self._refusal:
            self._read_explanation(self._feed(chunk))
            return None
        rest = self._head.add(chunk)
        if rest is None:
            return None
        answer, *others = self._feed(self._head.data)
        if not isinstance(answer, AcceptConnection):
            self._read_refusal(answer, others + self._feed(rest))
        elif answer.subprotocol != self._subprotocol:
            raise RemoteViolation(f"the server did not confirm the subprotocol {self._subprotocol}")
        else:
            return rest
        return None

    def at_end(self) -> NoReturn:
        """Say what the end of the stream means here."""
        if self._refusal:
            self._give_up()
        raise RemoteViolation(
            "the peer closed the connection before its HTTP response was complete"
        )

    def _feed(self, data: bytes) -> list[Event]:
        try:
            if data:  # h11 would take empty data for the end of the stream
                self._handshake.receive_data(data)
        except (RemoteProtocolError, ValueError) as error:  # ValueError: a header is not ASCII
            raise RemoteViolation(
                f"the server's response does not open a WebSocket: {error}"
            ) from error
        return list(self._handshake.events())

    def _read_refusal(self, answer: Event, others: list[Event]) -> None:
        assert isinstance(answer, RejectConnection)
        status = answer.status_code
        self._refusal = f"HTTP {status} {_PHRASES.get(status, '')}".rstrip()
        # A page of HTML, such as nng sends, has no further information for a log.
        is_text = (b"content-type", b"text/plain") in (
            (name, value.partition(b";")[0].strip().lower()) for name, value in answer.headers
        )
        if not (answer.has_body and is_text):
            self._give_up()
        self._read_explanation(others)

    def _read_explanation(self, events: list[Event]) -> None:
        """Read the next parts of a refusal's body; raise when it is long enough."""
        for event in events:
            assert isinstance(event, RejectData)
            # wsproto gives a bytearray, whatever its annotation says.
            self._explanation += bytes(cast(Any, event).data)
            if event.body_finished or len(self._explanation) >= _EXPLANATION_SIZE_MAX:
                self._give_up()

    def _give_up(self) -> NoReturn:
        explanation = quote(self._explanation[:_EXPLANATION_SIZE_MAX], _EXPLANATION_SIZE_MAX)
        reason = f": {explanation}" if explanation else ""
        raise RemoteViolation(f"the server refused the WebSocket: {self._refusal}{reason}")


def _request(host: str, path: str, subprotocol: str) -> Request:
    """Encode a request. Raises `LocalViolation` for an invalid host or path."""
    try:
        is_host = bool(host) and host.isprintable() and bool(host.encode("idna"))
    except UnicodeError:  # a label is empty or too long
        is_host = False
    if not is_host or _TARGET.fullmatch(path) is None:
        raise LocalViolation(
            f"cannot request a WebSocket from host {host!r}, path {path!r}: one of them is not"
            " valid"
        )
    return Request(host=host, target=path, subprotocols=[subprotocol])


def _path_of(target: str) -> str:
    """Return the path of a target in origin-form (`/path`) or absolute-form (`http://host/path`)."""
    absolute = _ABSOLUTE.match(target)
    path = target[absolute.end() if absolute else 0 :].partition("?")[0]
    return path or "/"


def _shown(data: bytes) -> str:
    """Return bytes as quoted text, or in hexadecimal if they are not printable."""
    text = data.decode("ascii", "replace")
    return f'"{text}"' if text.isascii() and text.isprintable() else f"the bytes {data.hex(' ')}"


def _may_begin_an_answer(data: bytes) -> bool:
    return data.startswith(_ANSWER[: len(data)])


def quote(words: bytes | str, size_max: int = _QUOTED_SIZE_MAX) -> str:
    """Return a peer's text as one printable line of at most `size_max` characters."""
    text = words if isinstance(words, str) else words.decode(errors="backslashreplace")
    printable = "".join(char if char.isprintable() else " " for char in text[:size_max])
    return " ".join(printable.split())
