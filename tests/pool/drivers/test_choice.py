"""Selection of the driver by its kind, and errors about its settings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.pool.drivers.conformance import CORE
from tests.pool.drivers.environment import environment_of

from requite.errors import ConfigurationError
from requite.pool.config import DriverSection
from requite.pool.drivers.base import Label, fingerprint
from requite.pool.drivers.choice import make_driver
from requite.pool.drivers.docker import DockerDriver
from requite.pool.drivers.kubernetes import KubernetesDriver
from requite.pool.drivers.noop import NoopDriver
from requite.pool.drivers.subprocesses import SubprocessDriver
from requite.pool.drivers.systemd import SystemdDriver


@pytest.mark.parametrize(
    ("kind", "settings", "made"),
    [
        ("noop", {}, NoopDriver),
        ("subprocess", {"command": ["true"], "stop_timeout": 5}, SubprocessDriver),
        ("docker", {"image": "worker:1", "cpus": "1.5"}, DockerDriver),
        ("kubernetes", {"image": "worker:1", "api_url": "http://x"}, KubernetesDriver),
        ("systemd", {"bus": "user"}, SystemdDriver),
    ],
)
async def test_each_kind_has_its_driver(kind: str, settings: dict[str, Any], made: type) -> None:
    driver = make_driver(DriverSection(kind, 60.0, settings), CORE, environment_of(CORE))
    assert isinstance(driver, made)
    await driver.close()


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        ("dokcer", {}, "'dokcer' is unknown; use one of subprocess, noop, docker, kubernetes"),
        ("noop", {"command": ["x"]}, "unknown setting 'command'; the section has no settings"),
        ("docker", {}, "image is missing"),
        ("docker", {"image": "x", "sockte": "y"}, "unknown setting 'sockte'"),
        ("subprocess", {"command": []}, r"driver\.command"),
        ("subprocess", {"command": ["x"], "stop_timeout": 60}, r"driver\.timeout \(60 s\) must"),
        ("docker", {"image": "x", "stop_timeout": "90"}, r"driver\.stop_timeout \(90 s\)"),
        ("systemd", {"env": "NAME"}, r"driver\.env"),
    ],
)
def test_invalid_settings_are_named(kind: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make_driver(DriverSection(kind, 60.0, settings), CORE, environment_of(CORE))


@pytest.mark.parametrize("name", ["", "Core", "a.b", "-a", "a-", "é", "a" * 41, "a_b"])
def test_invalid_pool_and_instance_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="pool = "):
        make_driver(DriverSection("noop"), Label(name, "one"), environment_of(CORE))
    with pytest.raises(ConfigurationError, match="instance = "):
        make_driver(DriverSection("noop"), Label("core", name), environment_of(CORE))


@pytest.mark.parametrize(
    ("kind", "package"),
    [("docker", "aiohttp"), ("kubernetes", "aiohttp"), ("systemd", "dbus_fast")],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    for name in list(sys.modules):
        if name.startswith(("requite.pool.drivers.", package)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    settings = {} if kind == "systemd" else {"image": "x"}
    with pytest.raises(ConfigurationError, match=rf"{package}.*requite\[pool\]"):
        make_driver(DriverSection(kind, 60.0, settings), CORE, environment_of(CORE))


def test_a_driver_does_not_import_packages_of_others() -> None:
    script = "import requite.pool.drivers.choice, requite.pool.drivers.subprocesses, sys;"
    script += "print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    loaded = run.stdout.split()
    assert "requite.pool.drivers.subprocesses" in loaded
    assert not {"aiohttp", "dbus_fast", "aio_pika"} & set(loaded)


def test_different_settings_have_different_fingerprints() -> None:
    first, second = fingerprint({"image": "a"}), fingerprint({"image": "b"})
    assert len(first) == 12
    assert first != second
    assert first == fingerprint({"image": "a"})
