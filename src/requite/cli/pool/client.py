"""HTTP client of a pool's manager, for the verbs of `requite pool`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Annotated, Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cyclopts import Group, Parameter

from requite.errors import ConfigurationError, NoService, TransportError

_TIMEOUT_S: Final = 30.0
_MANAGER: Final = Group("Manager", sort_key=80)

ManagerUrl = Annotated[
    str,
    Parameter(
        name="--manager",
        metavar="URL",
        group=_MANAGER,
        env_var="REQUITE_POOL_MANAGER",
        help="URL of the manager, as it prints it: [http] in its pool.toml.",
    ),
]
DEFAULT: Final = "http://127.0.0.1:8670"
Key = Annotated[str, Parameter(help="The key of the group.")]


def ask(manager: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return a manager's answer: to a POST with a `body`, else to a GET.

    Raises `TransportError` if no manager answers, `NoService` if this one cannot serve the request
    now, and `ConfigurationError` if the request is invalid.
    """
    if not manager.startswith(("http://", "https://")):
        raise ConfigurationError(f"--manager: {manager!r} is not an http:// or https:// URL")
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(manager.rstrip("/") + path, data), timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            raise _refusal(error) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TransportError(
            f"no pool manager answers at {manager}: {reason}", may_have_executed=False
        ) from None


def _refusal(error: HTTPError) -> NoService | ConfigurationError:
    text = error.read().decode(errors="replace")
    try:
        text = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        text = f"{error.code} {text[:200]}"
    if error.code == 503:
        return NoService(text, may_have_executed=False)
    return ConfigurationError(text)
