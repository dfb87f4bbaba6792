"""The driver for workers in a Kubernetes cluster: a Deployment per group, over the REST API."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.pool.drivers.base import (
    DriverError,
    Environment,
    KeyedTurns,
    Label,
    check_environment,
    check_workers,
)
from requite.pool.drivers.manifests import (
    KEY,
    VERSION,
    KubernetesSettings,
    autoscaler,
    deployment,
    name_of,
    scaled_object,
    selector,
)
from requite.pool.drivers.web import Web
from requite.pool.inputs import RunningGroup

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE: Final = "500"
_WORKERS_MAX: Final = 1_000
_DEPLOYMENTS: Final = ("apis/apps/v1", "deployments")
_SCALERS: Final = {
    "hpa": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "keda": ("apis/keda.sh/v1alpha1", "scaledobjects"),
}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


class KubernetesDriver:
    """Runs workers as pods of Deployments."""

    def __init__(
        self, settings: KubernetesSettings, label: Label, environment: Environment
    ) -> None:
        self.workers_max: int = _WORKERS_MAX if settings.scaling == "fixed" else 0
        self._settings: Final = settings
        self._label: Final = label
        self._environment: Final = environment
        self._turns: Final = KeyedTurns()
        self._pod_spec: Final = _read_pod_spec(settings.pod_spec)
        self._token_file: Final = settings.token_file or _if_there(_ACCOUNT / "token")
        self._namespace: Final = settings.namespace or _own_namespace()
        self._web: Final = Web(
            "the API of Kubernetes", "driver.api_url", _api_url(settings), tls=_tls(settings)
        )

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups that have a Deployment, including one that is being deleted."""
        return {
            each["metadata"]["annotations"][KEY]: self._group(each)
            async for each in self._deployments()
        }

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Create missing objects; scale an existing Deployment."""
        if workers is not None and self._settings.scaling != "fixed":
            raise DriverError(
                f"cannot scale the group: driver.scaling is {self._settings.scaling!r}; it must be"
                " 'fixed' to set a number of workers"
            )
        check_workers(workers, self.workers_max)
        async with self._turns.of(key):
            await self._create_scaler(key, version)
            if not await self._create_deployment(key, version, workers) and workers is not None:
                await self._resize(key, workers)

    async def stop(self, key: str) -> None:
        """Delete the group's objects; its pods stop gracefully."""
        async with self._turns.of(key):
            if self._settings.scaling in _SCALERS:
                await self._delete(_SCALERS[self._settings.scaling], key)
            await self._delete(_DEPLOYMENTS, key)

    async def close(self) -> None:
        """Close the connections."""
        await self._web.close()

    # --- objects ----------------------------------------------------------------------------------
    def _group(self, found: Mapping[str, Any]) -> RunningGroup:
        """Return the group of a Deployment; `workers` is None with an autoscaler."""
        metadata = found["metadata"]
        fixed = self._settings.scaling == "fixed"
        workers = int(found["spec"].get("replicas", 1)) if fixed else None
        stopping = "deletionTimestamp" in metadata
        return RunningGroup(metadata["annotations"].get(VERSION, ""), workers, stopping)

    async def _deployments(self) -> AsyncIterator[Mapping[str, Any]]:
        wanted = ",".join(f"{name}={value}" for name, value in selector(self._label).items())
        params = {"labelSelector": wanted, "limit": _PAGE}
        while True:
            page = await self._ask("GET", self._path(_DEPLOYMENTS), params=params, expect=(200,))
            for each in page["items"]:
                yield each
            after = page["metadata"].get("continue")
            if not after:
                return
            params["continue"] = after

    async def _create_deployment(self, key: str, version: str, workers: int | None) -> bool:
        """Create the Deployment of a group; return False if it exists."""
        fixed = self._settings.scaling == "fixed"
        variables = check_environment(self._environment(key, ""))
        replicas = (workers or self._settings.replicas) if fixed else None
        wanted = deployment(
            self._settings, self._label, key, version, replicas, variables, self._pod_spec
        )
        return await self._create(_DEPLOYMENTS, wanted)

    async def _create_scaler(self, key: str, version: str) -> None:
        settings, label = self._settings, self._label
        if settings.scaling == "hpa":
            await self._create(_SCALERS["hpa"], autoscaler(settings, label, key, version))
        elif settings.scaling == "keda":
            queue = self._environment(key, "")["WORKER_REQUESTS_QUEUE"]
            wanted = scaled_object(settings, label, key, version, queue)
            await self._create(_SCALERS["keda"], wanted)

    async def _create(self, kind: tuple[str, str], wanted: Mapping[str, Any]) -> bool:
        params = {"fieldManager": "requite"}
        path = self._path(kind)
        answer = await self._answer("POST", path, params=params, body=wanted, expect=(201, 409))
        return bool(answer.status == 201)

    async def _resize(self, key: str, workers: int) -> None:
        await self._ask(
            "PATCH",
            f"{self._path(_DEPLOYMENTS)}/{name_of(self._label, key)}",
            body={"spec": {"replicas": workers}},
            headers=_MERGE,
            expect=(200,),
        )

    async def _delete(self, kind: tuple[str, str], key: str) -> None:
        # Foreground: the Deployment exists until its last pod has ended.
        params = {"propagationPolicy": "Foreground"}
        path = f"{self._path(kind)}/{name_of(self._label, key)}"
        await self._ask("DELETE", path, params=params, expect=(200, 202, 404))

    # --- requests ---------------------------------------------------------------------------------
    def _path(self, kind: tuple[str, str]) -> str:
        api, plural = kind
        return f"/{api}/namespaces/{self._namespace}/{plural}"

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        return (await self._answer(method, path, **more)).content

    async def _answer(self, method: str, path: str, **more: Any) -> Any:
        headers = {**more.pop("headers", {}), **self._credentials()}
        return await self._web.ask(method, path, headers=headers, **more)

    def _credentials(self) -> dict[str, str]:
        """Read the token for each request: clusters replace it every hour."""
        if not self._token_file:
            return {}
        try:
            token = Path(self._token_file).read_text().strip()
        except OSError as error:
            raise DriverError(f"driver.token_file: {error}") from error
        return {"Authorization": f"Bearer {token}"}


# --- the cluster ----------------------------------------------------------------------------------
def _api_url(settings: KubernetesSettings) -> str:
    if settings.api_url:
        return settings.api_url
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError(
            "driver.api_url is empty; set it, since the manager does not run in a cluster"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _own_namespace() -> str:
    file = _ACCOUNT / "namespace"
    return file.read_text().strip() if file.exists() else "default"


def _if_there(file: Path) -> str:
    return str(file) if file.exists() else ""


def _tls(settings: KubernetesSettings) -> ssl.SSLContext | None:
    file = settings.ca_file or _if_there(_ACCOUNT / "ca.crt")
    if not file:
        return None
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ConfigurationError(f"driver.ca_file: {file}: {error}") from error


def _read_pod_spec(file: str) -> Mapping[str, Any]:
    if not file:
        return {}
    try:
        spec = json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"driver.pod_spec: {file}: {error}") from error
    if not isinstance(spec, dict):
        raise ConfigurationError(f"driver.pod_spec: {file} is not a JSON object")
    return spec
