"""The Kubernetes driver passes the driver suite with a stub of the Kubernetes API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pool.drivers.conformance import CORE, LastingConformance, listed
from tests.pool.drivers.environment import environment_of
from tests.pool.drivers.local_kubernetes import TOKEN, LocalKubernetes

from requite.errors import ConfigurationError
from requite.pool.drivers.base import DriverError, Label
from requite.pool.drivers.kubernetes import KubernetesDriver
from requite.pool.drivers.manifests import KEY, KubernetesSettings
from requite.pool.inputs import RunningGroup


class Cluster:
    """The stub of the Kubernetes API, and drivers that use it."""

    def __init__(self, folder: Path) -> None:
        self.server = LocalKubernetes()
        self.token_file = folder / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.drivers: list[KubernetesDriver] = []

    @property
    def settings(self) -> KubernetesSettings:
        """The default settings of the workers."""
        return KubernetesSettings(
            "worker:1", api_url=self.server.url, token_file=str(self.token_file), namespace="space"
        )

    def driver(self, label: Label = CORE) -> KubernetesDriver:
        """Return a driver with the default settings."""
        return self.make(self.settings, label)

    def make(self, settings: KubernetesSettings, label: Label = CORE) -> KubernetesDriver:
        """Return a driver with the given settings."""
        self.drivers.append(KubernetesDriver(settings, label, environment_of(label)))
        return self.drivers[-1]

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the environments of the pods of the pool."""
        return [each for each in self.server.environments() if each["WORKER_POOL"] == label.pool]

    async def kill(self, key: str) -> None:
        """Delete the Deployment of a key; a cluster would replace deleted pods."""
        for place, each in list(self.server.objects.items()):
            if each["metadata"]["annotations"][KEY] == key:
                del self.server.objects[place]


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Cluster]:
    backend = Cluster(tmp_path)
    await backend.server.start()
    try:
        yield backend
    finally:
        for driver in backend.drivers:
            await driver.close()
        await backend.server.close()


class TestKubernetesAtLocalServer(LastingConformance):
    """The driver suite for Kubernetes."""


async def test_paginated_lists_are_read_completely(backend: Cluster) -> None:
    driver = backend.driver()
    keys = [str(n) for n in range(7)]
    for key in keys:
        await driver.start(key, "1")
    await listed(driver, {key: RunningGroup("1", 1) for key in keys})


async def test_a_stopping_group_is_listed_until_it_has_ended(backend: Cluster) -> None:
    driver = backend.driver()
    await driver.start("42", "1")
    await driver.stop("42")
    assert dict(await driver.list()) == {"42": RunningGroup("1", 1, stopping=True)}
    assert dict(await driver.list()) == {}


async def test_the_worker_is_the_first_container_of_the_given_pod_spec(
    backend: Cluster, tmp_path: Path
) -> None:
    sidecar = {"name": "sidecar", "image": "sidecar:1", "env": []}
    given = {"nodeSelector": {"disk": "ssd"}, "containers": [sidecar]}
    (tmp_path / "pod.json").write_text(json.dumps(given))
    settings = replace(
        backend.settings,
        command=("requite",),
        args=("worker", "shop:price", "--pool"),
        pod_spec=str(tmp_path / "pod.json"),
        service_account="workers",
        image_pull_secrets=("registry",),
        cpu="500m",
        memory="1Gi",
        stop_timeout_s=12.0,
    )
    await backend.make(settings).start("42")
    [made] = backend.server.of_kind("Deployment")
    spec: dict[str, Any] = made["spec"]["template"]["spec"]
    worker = spec["containers"][0]
    assert spec["containers"][1:] == [sidecar]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["serviceAccountName"] == "workers"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["terminationGracePeriodSeconds"] == 12
    assert (worker["command"], worker["args"][0]) == (["requite"], "worker")
    assert worker["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize("key", ["$(WORKER_POOL)", "$$(X)", "$(", "a$(b)c$$"])
async def test_keys_are_not_expanded_as_variable_references(backend: Cluster, key: str) -> None:
    await backend.driver().start(key)
    [seen] = await backend.environments()
    assert seen["WORKER_KEY"] == key


async def test_keda_scales_by_the_length_of_the_queue(backend: Cluster) -> None:
    settings = replace(backend.settings, scaling="keda", replicas_max=5, queue_length=7)
    driver = backend.make(settings)
    await driver.start("42", "1")
    [scaled] = backend.server.of_kind("ScaledObject")
    [deployed] = backend.server.of_kind("Deployment")
    assert scaled["spec"] == {
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": deployed["metadata"]["name"],
        },
        "minReplicaCount": 1,
        "maxReplicaCount": 5,
        "triggers": [
            {
                "type": "rabbitmq",
                "metadata": {
                    "protocol": "amqp",
                    "hostFromEnv": "WORKER_AMQP_URL",
                    "queueName": "core-req-42",
                    "mode": "QueueLength",
                    "value": "7",
                },
            }
        ],
    }
    await _check_scaled_by_others(backend, driver)


async def test_an_hpa_scales_by_load(backend: Cluster) -> None:
    settings = replace(backend.settings, scaling="hpa", cpu="500m", replicas=2, replicas_max=6)
    driver = backend.make(settings)
    await driver.start("42", "1")
    [scaler] = backend.server.of_kind("HorizontalPodAutoscaler")
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 6)
    await _check_scaled_by_others(backend, driver)


async def _check_scaled_by_others(backend: Cluster, driver: KubernetesDriver) -> None:
    [deployed] = backend.server.of_kind("Deployment")
    assert "replicas" not in deployed["spec"]
    assert driver.workers_max == 0
    await listed(driver, {"42": RunningGroup("1", None)})
    with pytest.raises(DriverError, match=r"driver\.scaling"):
        await driver.start("42", "1", 3)
    await driver.stop("42")
    await listed(driver, {})
    assert backend.server.objects == {}


async def test_the_token_file_is_read_for_each_request(backend: Cluster) -> None:
    driver = backend.driver()
    backend.token_file.write_text("an-old-one")
    with pytest.raises(DriverError, match="401 Unauthorized"):
        await driver.list()
    backend.token_file.write_text(TOKEN)
    assert dict(await driver.list()) == {}
    backend.token_file.unlink()
    with pytest.raises(DriverError, match=r"driver\.token_file"):
        await driver.list()


async def test_an_unreachable_cluster_is_named(backend: Cluster) -> None:
    driver = backend.make(replace(backend.settings, api_url="http://127.0.0.1:1"))
    with pytest.raises(DriverError, match=r"driver\.api_url: no answer"):
        await driver.list()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"image": ""}, "image"),
        ({"scaling": "maybe"}, "scaling"),
        ({"scaling": "hpa"}, "cpu"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 11}, "replicas"),
        ({"env": ("NAME",)}, "env"),
    ],
)
def test_invalid_settings_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"driver\.{name}"):
        KubernetesSettings(**{"image": "worker:1"} | settings)


@pytest.mark.parametrize("text", ["", "[]", None])
def test_an_invalid_pod_spec_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "pod.json"
    if text is not None:
        file.write_text(text)
    settings = KubernetesSettings("worker:1", api_url="http://127.0.0.1:1", pod_spec=str(file))
    with pytest.raises(ConfigurationError, match=r"driver\.pod_spec"):
        KubernetesDriver(settings, CORE, environment_of(CORE))


def test_api_url_is_required_outside_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match=r"driver\.api_url"):
        KubernetesDriver(KubernetesSettings("worker:1"), CORE, environment_of(CORE))
