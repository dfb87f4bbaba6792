"""Kubernetes objects of a group: its Deployment, and its autoscaler.

Sources: Kubernetes API, `apps/v1` Deployment and `autoscaling/v2` HorizontalPodAutoscaler; KEDA 2,
`keda.sh/v1alpha1` ScaledObject with the trigger `rabbitmq`. Names and labels of Kubernetes have
restricted characters and at most 63 of them, so a group is named by a digest; annotations hold its
key and version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.pool.drivers.base import Label, digest, variables_of

POOL: Final = "requite/pool"
INSTANCE: Final = "requite/instance"
GROUP: Final = "requite/group"
KEY: Final = "requite/key"
VERSION: Final = "requite/version"
SCALINGS: Final = ("fixed", "hpa", "keda")
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Settings of workers in a cluster.

    - `image`, `command`, `args` (empty: the image's own), `env` (NAME=VALUE).
    - `namespace`; empty: the manager's own.
    - `api_url`, `token_file`, `ca_file`: the cluster; empty: the one that runs the manager.
    - `service_account`, `image_pull_secrets`, `pod_spec` of the pods; `pod_spec` is a file with a
      PodSpec as JSON, to which the driver adds the worker.
    - `cpu`, `memory`: resource requests per worker, in Kubernetes' notation ("500m", "1Gi"). An HPA
      needs `cpu`.
    - `scaling`: `fixed` (`replicas` workers), `hpa` (by CPU, to `cpu_target` percent of the
      request) or `keda` (one worker per `queue_length` waiting requests), from `replicas` to
      `replicas_max`.
    - `stop_timeout`: how long a worker may take to finish its requests before it is killed.
    """

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = field(default=(), repr=False)
    namespace: str = ""
    api_url: str = ""
    token_file: str = ""
    ca_file: str = ""
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    pod_spec: str = ""
    cpu: str = ""
    memory: str = ""
    scaling: str = "fixed"
    replicas: int = 1
    replicas_max: int = 10
    cpu_target: int = 80
    queue_length: int = 20
    stop_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.image:
            raise ConfigurationError("driver.image is empty; set it to the image of the workers")
        if self.scaling not in SCALINGS:
            raise ConfigurationError(f"driver.scaling must be one of {', '.join(SCALINGS)}")
        if self.scaling == "hpa" and not self.cpu:
            raise ConfigurationError(
                "driver.cpu is empty; an HPA requires the CPU request of a worker"
            )
        if not 1 <= self.replicas <= self.replicas_max:
            raise ConfigurationError("driver.replicas must be 1 to driver.replicas_max")
        variables_of(self.env)


def selector(label: Label) -> dict[str, str]:
    """Return the labels of all objects of a pool and instance."""
    return {_MANAGED_BY: "requite", POOL: label.pool, INSTANCE: label.instance}


def name_of(label: Label, key: str) -> str:
    """Return the unique name of a group's objects: at most 61 characters."""
    return f"{label.pool}-{digest(f'{label.prefix}/{key}')}"


def deployment(
    settings: KubernetesSettings,
    label: Label,
    key: str,
    version: str,
    replicas: int | None,
    variables: Mapping[str, str],
    pod_spec: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the Deployment of a group; `replicas` None: an autoscaler decides."""
    labels = _labels(label, key)
    spec: dict[str, Any] = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": {KEY: key, VERSION: version}},
            "spec": _pod(settings, variables, pod_spec),
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(label, key, version),
        "spec": spec,
    }


def autoscaler(
    settings: KubernetesSettings, label: Label, key: str, version: str
) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler of a group."""
    target = {"type": "Utilization", "averageUtilization": settings.cpu_target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(label, key, version),
        "spec": {
            "scaleTargetRef": _target(label, key),
            "minReplicas": settings.replicas,
            "maxReplicas": settings.replicas_max,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def scaled_object(
    settings: KubernetesSettings, label: Label, key: str, version: str, queue: str
) -> dict[str, Any]:
    """Return the ScaledObject of a group. KEDA reads the URL of RabbitMQ from the workers'
    environment."""
    trigger = {
        "type": "rabbitmq",
        "metadata": {
            "protocol": "amqp",
            "hostFromEnv": "WORKER_AMQP_URL",
            "queueName": queue,
            "mode": "QueueLength",
            "value": str(settings.queue_length),
        },
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _metadata(label, key, version),
        "spec": {
            "scaleTargetRef": _target(label, key),
            "minReplicaCount": settings.replicas,
            "maxReplicaCount": settings.replicas_max,
            "triggers": [trigger],
        },
    }


def _labels(label: Label, key: str) -> dict[str, str]:
    return {**selector(label), GROUP: digest(key)}


def _metadata(label: Label, key: str, version: str) -> dict[str, Any]:
    return {
        "name": name_of(label, key),
        "labels": _labels(label, key),
        "annotations": {KEY: key, VERSION: version},
    }


def _target(label: Label, key: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name_of(label, key)}


def _pod(
    settings: KubernetesSettings, variables: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the given PodSpec with the worker as its first container."""
    own: dict[str, Any] = {"terminationGracePeriodSeconds": round(settings.stop_timeout_s)}
    if settings.service_account:
        own["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        own["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    worker = _container(settings, variables)
    return {**given, **own, "containers": [worker, *given.get("containers", ())]}


def _container(settings: KubernetesSettings, variables: Mapping[str, str]) -> dict[str, Any]:
    everything = {**variables_of(settings.env), **variables}
    env: list[dict[str, Any]] = [
        {"name": name, "value": _literal(value)}
        for name, value in everything.items()
        if name != "WORKER_ID"
    ]
    # All pods of a Deployment share an environment, except for fields of the pod.
    env.append({"name": "WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    container: dict[str, Any] = {"name": "worker", "image": settings.image, "env": env}
    asked = {"cpu": settings.cpu, "memory": settings.memory}
    requests = {name: amount for name, amount in asked.items() if amount}
    more = {
        "command": [*settings.command],
        "args": [*settings.args],
        "resources": {"requests": requests} if requests else {},
    }
    return container | {name: value for name, value in more.items() if value}


def _literal(value: str) -> str:
    """Escape a value for Kubernetes, which expands `$(NAME)`, and `$$` to a dollar."""
    return value.replace("$", "$$")
