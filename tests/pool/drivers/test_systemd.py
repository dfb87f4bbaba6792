"""The systemd driver passes the driver suite with a stub of systemd on a real D-Bus daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pool.drivers.conformance import CORE, KEYS, LastingConformance, listed
from tests.pool.drivers.environment import environment_of
from tests.pool.drivers.local_systemd import LocalSystemd, missing_daemon, parse_environment

from requite.errors import ConfigurationError
from requite.pool.drivers.base import DriverError, Label
from requite.pool.drivers.systemd import SystemdDriver, SystemdSettings
from requite.pool.drivers.units import Units, escape, quoted, unescape
from requite.pool.inputs import RunningGroup

pytestmark = pytest.mark.e2e


class SystemdUnits:
    """The stub of systemd, and drivers that use it."""

    def __init__(self, folder: Path) -> None:
        self.systemd = LocalSystemd(folder)
        self.drivers: list[SystemdDriver] = []

    @property
    def settings(self) -> SystemdSettings:
        """The default settings of the driver."""
        return SystemdSettings(
            environment_dir=str(self.systemd.manager.environment_dir), bus=self.systemd.address
        )

    def driver(self, label: Label = CORE) -> SystemdDriver:
        """Install a unit template; return a driver that uses it."""
        self.systemd.manager.templates.add(label.prefix)
        return self.make(self.settings, label)

    def make(self, settings: SystemdSettings, label: Label = CORE) -> SystemdDriver:
        """Return a driver with the given settings."""
        self.drivers.append(SystemdDriver(settings, label, environment_of(label)))
        return self.drivers[-1]

    async def environments(self, label: Label = CORE) -> list[Mapping[str, str]]:
        """Return the environments of the units of the pool."""
        seen = [unit.environment for unit in self.systemd.manager.units.values()]
        return [each for each in seen if each["WORKER_POOL"] == label.pool]

    async def kill(self, key: str) -> None:
        """Set the unit of a key to failed."""
        for unit in self.systemd.manager.units.values():
            if unit.environment["WORKER_KEY"] == key:
                unit.state = "failed"


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SystemdUnits]:
    if flaw := missing_daemon():
        pytest.skip(flaw)
    backend = SystemdUnits(tmp_path)
    await backend.systemd.start()
    try:
        yield backend
    finally:
        for driver in backend.drivers:
            await driver.close()
        await backend.systemd.close()


class TestSystemdAtLocalManager(LastingConformance):
    """The driver suite for systemd."""


async def test_a_stopping_unit_is_listed_until_it_has_ended(backend: SystemdUnits) -> None:
    backend.systemd.manager.slow_stops = True
    driver = backend.driver()
    await driver.start("42", "1")
    await driver.stop("42")
    assert dict(await driver.list()) == {"42": RunningGroup("1", 1, stopping=True)}
    backend.systemd.manager.units.clear()
    assert dict(await driver.list()) == {}


async def test_a_template_that_is_not_installed_is_named(backend: SystemdUnits) -> None:
    driver = backend.make(replace(backend.settings, template="other"))
    with pytest.raises(DriverError, match=r"driver\.template: the unit other@\.service"):
        await driver.start("42")


async def test_units_without_an_environment_file_are_found(backend: SystemdUnits) -> None:
    driver = backend.driver()
    await driver.start("a/b", "1")
    [file] = (backend.systemd.manager.environment_dir / CORE.prefix).glob("*.env")
    file.unlink()
    assert dict(await driver.list()) == {"a/b": RunningGroup("", 1)}


async def test_unused_environment_files_are_removed_later(backend: SystemdUnits) -> None:
    driver = backend.driver()
    await driver.start("42")
    [file] = (backend.systemd.manager.environment_dir / CORE.prefix).glob("*.env")
    assert file.stat().st_mode & 0o777 == 0o600
    await driver.stop("42")
    await driver.list()
    assert file.exists()
    os.utime(file, (0, 0))
    await driver.list()
    assert not file.exists()


async def test_an_environment_folder_that_cannot_be_created_is_named(
    backend: SystemdUnits, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    backend.systemd.manager.templates.add(CORE.prefix)
    driver = backend.make(replace(backend.settings, environment_dir=str(tmp_path / "file")))
    with pytest.raises(DriverError, match=r"driver\.environment_dir"):
        await driver.start("42")


async def test_an_unreachable_bus_is_named(tmp_path: Path) -> None:
    settings = SystemdSettings(bus=f"unix:path={tmp_path / 'nowhere'}")
    driver = SystemdDriver(settings, CORE, environment_of(CORE))
    with pytest.raises(DriverError, match=r"driver\.bus: cannot reach"):
        await driver.list()


async def test_a_bus_without_systemd_is_named(tmp_path: Path) -> None:
    if flaw := missing_daemon():
        pytest.skip(flaw)
    bus = LocalSystemd(tmp_path)
    await bus.start_bus()
    driver = SystemdDriver(SystemdSettings(bus=bus.address), CORE, environment_of(CORE))
    try:
        with pytest.raises(DriverError, match=r"driver\.bus: systemd is not on this bus"):
            await driver.list()
    finally:
        await driver.close()
        await bus.close()


async def test_the_driver_reconnects_after_a_restart_of_the_bus(backend: SystemdUnits) -> None:
    driver = backend.driver()
    await listed(driver, {})
    await backend.systemd.close()
    with pytest.raises(DriverError, match=r"driver\.bus"):
        await driver.list()
    await backend.systemd.start()
    await listed(driver, {})


def test_a_template_is_a_name_without_suffix() -> None:
    with pytest.raises(ConfigurationError, match=r"driver\.template"):
        SystemdSettings(template="core@.service")


# --- names and files ------------------------------------------------------------------------------
@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="no systemd-escape here")
@pytest.mark.parametrize("key", [key for key in KEYS if key], ids=repr)
def test_names_are_escaped_as_systemd_does(key: str) -> None:
    command = ["systemd-escape", "--", key]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert escape(key) == run.stdout.removesuffix("\n")


@given(st.text())
def test_unescape_reverses_escape(key: str) -> None:
    assert unescape(escape(key)) == key


@given(st.text())
def test_unit_names_hold_the_key_or_its_hash(
    tmp_path_factory: pytest.TempPathFactory, key: str
) -> None:
    units = Units("core.one", Path("/nowhere"))
    name = units.name_of(key)
    assert len(name) <= 255
    assert (units.identity_of(name).key == key) is ("sha256:" not in name)


@given(st.text(st.characters(exclude_characters="\0")))
def test_values_are_read_back_from_environment_files(value: str) -> None:
    assert parse_environment(f"#comment\nNAME={quoted(value)}\n") == {"NAME": value}
