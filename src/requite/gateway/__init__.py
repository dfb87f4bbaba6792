"""The HTTP door: typed services as JSON over HTTP, for `requite gateway` and your own application.

app.py       `Gateway`: a Starlette application, to mount
server.py    `GatewayServer`: the same with a server and a client, for `requite gateway`
calls.py     a call for a request; `options.py`: its deadline and idempotency key
bodies.py    bodies within limits, and their conversion
streams.py   partial replies as server-sent events
problems.py  failures as problem details, from the tree of errors
catalog.py   the descriptions of services, fetched when needed
users.py     tokens and passwords; `quotas.py`: what each user may have in progress
meter.py     metrics
openapi.py   descriptions as a document of OpenAPI 3.1; `pages.py`, `page/`: a page to try it

Source: docs/how-to/open-an-http-door.md.
"""

from requite.errors import ConfigurationError

try:
    from requite.gateway.app import Gateway
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        f"the HTTP door needs {missing.name}, which is not installed: pip install"
        " 'requite[gateway]'"
    ) from missing
from requite.gateway.policy import GatewayPolicy

__all__ = ["Gateway", "GatewayPolicy"]
