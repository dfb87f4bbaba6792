"""HTTP client of a pool's manager, for the verbs of `requite pool`."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPS_PORT, BadStatusLine, HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from cyclopts import Group, Parameter

from requite.errors import ConfigurationError, NoService, TransportError
from requite.speaks.tls import check_files
from requite.speaks.url import TLS_OPTIONS, read_options, refuse
from requite.transport.tls import TlsSettings
from requite.transport.tls_session import in_words

_TIMEOUT_S: Final = 30.0
_MANAGER: Final = Group("Manager", sort_key=80)
_UNIX: Final = "unix:"

Key = Annotated[str, Parameter(help="The key of the group.")]


@Parameter(name="*", group=_MANAGER)
@dataclass(frozen=True, slots=True)
class Manager:
    """Where the manager is, and its token."""

    manager: Annotated[
        str,
        Parameter(
            metavar="URL",
            env_var="REQUITE_POOL_MANAGER",
            help="URL of the manager, as it prints it: [http] in its pool.toml. With TLS "
            "`https://HOST:PORT?ca=FILE&certificate=FILE&key=FILE`.",
        ),
    ] = "http://127.0.0.1:8670"
    token_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var="REQUITE_POOL_TOKEN_FILE",
            help="File with the token, for a manager that requires it: http.token_file in its "
            "pool.toml. Only its owner may have access to it (mode 0600).",
        ),
    ] = None


DEFAULT: Final = Manager()


def ask(manager: Manager, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return a manager's answer: to a POST with a `body`, else to a GET.

    Raises `TransportError` if no manager answers, `NoService` if this one cannot serve the request
    now, and `ConfigurationError` if the request is invalid.
    """
    url = manager.manager
    if not url.startswith(("http://", "https://", f"{_UNIX}/")):
        raise ConfigurationError(
            f"--manager: {url!r} is not an http:// or https:// URL, or unix:/PATH"
        )
    opener = _opener_of(url)
    request = _request_of(manager, path, body)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            raise _refusal(error) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = _in_words(error.reason if isinstance(error, URLError) else error)
        raise TransportError(
            f"no pool manager answers at {url}: {reason}", may_have_executed=False
        ) from None


def _request_of(manager: Manager, path: str, body: Mapping[str, Any] | None) -> Request:
    """Return a request; only one that changes something has the token."""
    url = manager.manager
    place = url.partition("?")[0].rstrip("/")
    base = "http://localhost" if url.startswith(_UNIX) else place
    if body is None:
        return Request(base + path)
    headers = {"Content-Type": "application/json"}
    if manager.token_file is not None:
        from requite.pool.token import read_token

        token = read_token(manager.token_file, "--token-file")
        headers["Authorization"] = f"Bearer {token}"
    return Request(base + path, json.dumps(body).encode(), headers)


def _in_words(error: object) -> str:
    match error:
        case ssl.SSLError():
            return in_words(error)
        case BadStatusLine() if not isinstance(error, ConnectionError):
            return "it does not speak HTTP there; for a manager with TLS use https://"
        case _:
            return str(error)


def _opener_of(url: str) -> OpenerDirector:
    """Return what opens URLs of a manager. Raises `ConfigurationError`."""
    if url.startswith(_UNIX):
        return build_opener(ProxyHandler({}), _UnixHandler(url.removeprefix(_UNIX)))
    _, _, query = url.partition("?")
    if not url.startswith("https:"):
        if query:
            refuse(url, "options are for https:// only")
        return build_opener()
    options = read_options(query, TLS_OPTIONS, (), url)
    try:
        tls = TlsSettings(**options)  # type: ignore[arg-type]  # all of these are text
        check_files(tls, listening=False)
    except ConfigurationError as error:
        refuse(url, str(error))
    return build_opener(_SecureHandler(tls))


class _SecureHandler(HTTPSHandler):
    """Opens URLs over TLS with these settings."""

    def __init__(self, tls: TlsSettings) -> None:
        self._context = tls.dialling_context()
        super().__init__(context=self._context)
        self._server_name = tls.server_name

    def https_open(self, req: Request) -> Any:
        """Send a request (urllib)."""
        return self.do_open(partial(_SecureConnection, self._context, self._server_name), req)


class _SecureConnection(HTTPConnection):
    """An HTTP connection over TLS. `server_name`: the name in the certificate, if it is not the
    host."""

    default_port = HTTPS_PORT

    def __init__(
        self, context: ssl.SSLContext, server_name: str | None, host: str, *, timeout: float
    ) -> None:
        super().__init__(host, timeout=timeout)
        self._context = context
        self._server_name = server_name

    def connect(self) -> None:
        """Connect (http.client)."""
        super().connect()
        proxied: str | None = self._tunnel_host  # type: ignore[attr-defined]  # as HTTPSConnection
        name = self._server_name or proxied or self.host
        self.sock = self._context.wrap_socket(self.sock, server_hostname=name)


class _UnixHandler(HTTPHandler):
    """Opens URLs at a Unix socket, whatever their host."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: Request) -> Any:
        """Send a request (urllib)."""
        return self.do_open(partial(_UnixConnection, self._path), req)


class _UnixConnection(HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str, host: str, *, timeout: float) -> None:
        super().__init__(host, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect (http.client)."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _refusal(error: HTTPError) -> NoService | ConfigurationError:
    text = error.read().decode(errors="replace")
    try:
        text = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        text = f"{error.code} {text[:200]}"
    if error.code == 503:
        return NoService(text, may_have_executed=False)
    return ConfigurationError(text)
