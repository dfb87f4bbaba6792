"""A stub of the Kubernetes API, as far as the pool driver uses it.

It stores Deployments, HorizontalPodAutoscalers and KEDA's ScaledObjects in a table; no pods run.
The stub checks objects as an API server does: names, labels, selectors, environments, tokens.
Lists are paginated. A Deployment that is deleted in the foreground is listed once more.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from requite.web.server import HttpServer

Handler = Callable[[Request], Awaitable[Response]]

TOKEN = "a-token"
PAGE = 2
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_KINDS = {
    ("apps", "deployments"): "Deployment",
    ("autoscaling", "horizontalpodautoscalers"): "HorizontalPodAutoscaler",
    ("keda.sh", "scaledobjects"): "ScaledObject",
}
_PATH = "/apis/{api}/{version}/namespaces/{namespace}/{plural}"


class LocalKubernetes:
    """The stub server, on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        app = Starlette(
            routes=[
                _route("GET", _PATH, self._list),
                _route("POST", _PATH, self._create),
                _route("PATCH", _PATH + "/{name}", self._patch),
                _route("DELETE", _PATH + "/{name}", self._delete),
            ]
        )
        self._server = HttpServer(app)

    @property
    def url(self) -> str:
        """The base URL; empty before `start`."""
        return self._server.url

    async def start(self) -> None:
        """Listen on the port."""
        await self._server.listen("127.0.0.1", 0, "")

    async def close(self) -> None:
        """Stop listening."""
        await self._server.close()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that are not being deleted."""
        found = [each for (which, _, _), each in self.objects.items() if which == kind]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def environments(self) -> list[dict[str, str]]:
        """Return the environment of each pod that the Deployments require."""
        return [
            _resolve(each, number)
            for each in self.of_kind("Deployment")
            for number in range(each["spec"].get("replicas", 1))
        ]

    # --- the API ----------------------------------------------------------------------------------
    async def _list(self, request: Request) -> Response:
        kind, namespace = _place(request)
        wanted = dict(each.split("=") for each in request.query_params["labelSelector"].split(","))
        found = [
            each
            for (which, where, _), each in sorted(self.objects.items())
            if (which, where) == (kind, namespace)
            and wanted.items() <= each["metadata"]["labels"].items()
        ]
        first = int(request.query_params.get("continue", "0"))
        last = first + min(PAGE, int(request.query_params["limit"]))
        page = found[first:last]
        if last >= len(found):
            self._end_deleted(found)
        more = {"continue": str(last)} if last < len(found) else {}
        return JSONResponse({"items": page, "metadata": more})

    def _end_deleted(self, seen: list[dict[str, Any]]) -> None:
        for place, each in list(self.objects.items()):
            if each in seen and "deletionTimestamp" in each["metadata"]:
                del self.objects[place]

    async def _create(self, request: Request) -> Response:
        kind, namespace = _place(request)
        wanted = await request.json()
        assert wanted["kind"] == kind
        flaw = _flaw(wanted)
        if flaw:
            return _status(422, flaw)
        name = wanted["metadata"]["name"]
        if (kind, namespace, name) in self.objects:
            return _status(409, f'{kind} "{name}" already exists')
        self.objects[kind, namespace, name] = wanted
        return JSONResponse(wanted, 201)

    async def _patch(self, request: Request) -> Response:
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        kind, namespace = _place(request)
        found = self.objects.get((kind, namespace, request.path_params["name"]))
        if found is None:
            return _status(404, "not found")
        _merge(found, await request.json())
        return JSONResponse(found)

    async def _delete(self, request: Request) -> Response:
        kind, namespace = _place(request)
        name = request.path_params["name"]
        found = self.objects.get((kind, namespace, name))
        if found is None:
            return _status(404, f'{kind} "{name}" not found')
        if kind == "Deployment" and request.query_params.get("propagationPolicy") == "Foreground":
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return JSONResponse(found, 202)
        del self.objects[kind, namespace, name]
        return JSONResponse({"kind": "Status", "status": "Success"})


def _route(method: str, path: str, handler: Handler) -> Route:
    """Return a route that requires the token."""

    async def admitted(request: Request) -> Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        return await handler(request)

    return Route(path, admitted, methods=[method])


def _place(request: Request) -> tuple[str, str]:
    match = request.path_params
    return _KINDS[match["api"], match["plural"]], match["namespace"]


def _flaw(wanted: dict[str, Any]) -> str:
    """Return why an API server would refuse an object; empty if it would not."""
    metadata, spec = wanted["metadata"], wanted["spec"]
    if _NAME.fullmatch(metadata["name"]) is None:
        return f"metadata.name: Invalid value: {metadata['name']!r}"
    for name, value in metadata["labels"].items():
        if _VALUE.fullmatch(value) is None:
            return f"metadata.labels: Invalid value: {name}={value!r}"
    if wanted["kind"] != "Deployment":
        return "" if spec["scaleTargetRef"]["kind"] == "Deployment" else "spec.scaleTargetRef"
    if (
        not spec["selector"]["matchLabels"].items()
        <= spec["template"]["metadata"]["labels"].items()
    ):
        return "`selector` does not match template `labels`"
    for container in spec["template"]["spec"]["containers"]:
        if len({each["name"] for each in container["env"]}) != len(container["env"]):
            return "spec.template.spec.containers[0].env: Duplicate value"
    return ""


def _resolve(deployment: dict[str, Any], number: int) -> dict[str, str]:
    """Return the environment of a pod, with variable references resolved in order."""
    resolved: dict[str, str] = {}
    for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "valueFrom" in each:
            assert each["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            resolved[each["name"]] = f"{deployment['metadata']['name']}-{number}"
        else:
            resolved[each["name"]] = _expand(each["value"], resolved)
    return resolved


def _expand(text: str, known: dict[str, str]) -> str:
    def of(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return _REFERENCE.sub(of, text)


def _merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _status(code: int, message: str) -> Response:
    return JSONResponse({"kind": "Status", "code": code, "message": message}, code)
