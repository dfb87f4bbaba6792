"""Makes the driver that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.errors import ConfigurationError
from requite.pool.config import DriverSection, read_section
from requite.pool.drivers.base import Driver, Environment, Label, check_label
from requite.pool.drivers.noop import NoopDriver

KINDS: Final = ("subprocess", "noop", "docker", "kubernetes", "systemd")


@dataclass(frozen=True, slots=True)
class _NoSettings:
    """Settings of the driver `noop`: none."""


def make_driver(section: DriverSection, label: Label, environment: Environment) -> Driver:
    """Make the driver that `[driver]` describes. Raises `ConfigurationError`.

    Imports only the packages of that driver.
    """
    if section.kind not in KINDS:
        raise ConfigurationError(
            f"[driver] kind = {section.kind!r} is unknown; use one of {', '.join(KINDS)}"
        )
    check_label(label)
    try:
        return _make(section, label, environment)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"[driver] kind = {section.kind!r} requires the package {error.name}, which is not"
            " installed: pip install 'requite[pool]'"
        ) from error


def _make(section: DriverSection, label: Label, environment: Environment) -> Driver:
    where = f"[driver] of kind {section.kind!r}"
    match section.kind:
        case "docker":
            from requite.pool.drivers.docker import DockerDriver, DockerSettings

            docker = read_section(DockerSettings, section.settings, where)
            _check_timeouts(section.timeout_s, docker.stop_timeout_s)
            return DockerDriver(docker, label, environment)
        case "kubernetes":
            from requite.pool.drivers.kubernetes import KubernetesDriver
            from requite.pool.drivers.manifests import KubernetesSettings

            cluster = read_section(KubernetesSettings, section.settings, where)
            return KubernetesDriver(cluster, label, environment)
        case "systemd":
            from requite.pool.drivers.systemd import SystemdDriver, SystemdSettings

            units = read_section(SystemdSettings, section.settings, where)
            return SystemdDriver(units, label, environment)
        case "subprocess":
            from requite.pool.drivers.subprocesses import SubprocessDriver, SubprocessSettings

            processes = read_section(SubprocessSettings, section.settings, where)
            _check_timeouts(section.timeout_s, processes.stop_timeout_s)
            return SubprocessDriver(processes, label, environment)
    read_section(_NoSettings, section.settings, where)
    return NoopDriver()


def _check_timeouts(timeout_s: float, stop_timeout_s: float) -> None:
    """Check that a stop cannot time out: it would be repeated, and a worker that is signalled twice
    drops its requests."""
    if timeout_s <= stop_timeout_s:
        raise ConfigurationError(
            f"driver.timeout ({timeout_s:g} s) must be longer than driver.stop_timeout"
            f" ({stop_timeout_s:g} s), since a stop may take that long"
        )
