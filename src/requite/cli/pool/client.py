"""HTTP client of a pool's manager, for the verbs of `requite pool`."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from cyclopts import Group, Parameter

from requite.errors import ConfigurationError, NoService, TransportError

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
            help="URL of the manager, as it prints it: [http] in its pool.toml.",
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
    request = _request_of(manager, path, body)
    try:
        with _opener_of(url).open(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            raise _refusal(error) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TransportError(
            f"no pool manager answers at {url}: {reason}", may_have_executed=False
        ) from None


def _request_of(manager: Manager, path: str, body: Mapping[str, Any] | None) -> Request:
    """Return a request; only one that changes something has the token."""
    url = manager.manager
    base = "http://localhost" if url.startswith(_UNIX) else url.rstrip("/")
    if body is None:
        return Request(base + path)
    headers = {"Content-Type": "application/json"}
    if manager.token_file is not None:
        from requite.pool.token import read_token

        token = read_token(manager.token_file, "--token-file")
        headers["Authorization"] = f"Bearer {token}"
    return Request(base + path, json.dumps(body).encode(), headers)


def _opener_of(url: str) -> OpenerDirector:
    if not url.startswith(_UNIX):
        return build_opener()
    return build_opener(ProxyHandler({}), _UnixHandler(url.removeprefix(_UNIX)))


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
