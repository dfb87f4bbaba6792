"""A stub of systemd's manager on a real D-Bus daemon.

Units of installed templates are entries of a table; nothing runs. The stub reads environment files
when a unit starts, by the rules of systemd.exec(5).
"""

from __future__ import annotations

import asyncio
import fnmatch
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from dbus_fast import DBusError
from dbus_fast.aio import MessageBus
from dbus_fast.annotations import DBusObjectPath, DBusSignature, DBusStr
from dbus_fast.service import ServiceInterface, dbus_method

_CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


@dataclass
class Unit:
    """An instance of a unit template."""

    name: str
    state: str
    environment: dict[str, str] = field(default_factory=dict)


class LocalManager(ServiceInterface):
    """systemd's Manager interface, as far as the pool driver uses it."""

    def __init__(self, environment_dir: Path) -> None:
        super().__init__("org.freedesktop.systemd1.Manager")
        self.environment_dir = environment_dir
        self.templates: set[str] = set()
        self.units: dict[str, Unit] = {}
        self.slow_stops = False
        self._jobs = 0

    @dbus_method()
    def ListUnitsByPatterns(
        self,
        states: Annotated[list[str], DBusSignature("as")],
        patterns: Annotated[list[str], DBusSignature("as")],
    ) -> Annotated[list[Any], DBusSignature("a(ssssssouso)")]:
        """Return the loaded units with one of the states and a name that matches a pattern."""
        return [
            [u.name, "", "loaded", u.state, "", "", "/org/freedesktop/systemd1/unit/x", 0, "", "/"]
            for u in self.units.values()
            if u.state in states and any(fnmatch.fnmatchcase(u.name, p) for p in patterns)
        ]

    @dbus_method()
    def StartUnit(self, name: DBusStr, mode: DBusStr) -> DBusObjectPath:
        """Start a unit of an installed template."""
        template, at, instance = name.removesuffix(".service").partition("@")
        if template not in self.templates or not (at and instance) or mode != "replace":
            raise DBusError(_NO_SUCH_UNIT, f"Unit {name} not found.")
        assert len(name) <= 255
        assert all(c.isascii() and (c.isalnum() or c in ":_.\\-@") for c in name)
        unit = self.units.setdefault(name, Unit(name, "inactive"))
        if unit.state != "active":
            file = self.environment_dir / template / f"{instance}.env"
            unit.environment = parse_environment(file.read_text())
            unit.state = "active"
        return self._job()

    @dbus_method()
    def StopUnit(self, name: DBusStr, mode: DBusStr) -> DBusObjectPath:
        """Stop a unit; with `slow_stops` it stays `deactivating`."""
        if name not in self.units or mode != "replace":
            raise DBusError(_NO_SUCH_UNIT, f"Unit {name} not loaded.")
        if self.slow_stops:
            self.units[name].state = "deactivating"
        else:
            del self.units[name]  # systemd unloads units that have ended
        return self._job()

    def _job(self) -> str:
        self._jobs += 1
        return f"/org/freedesktop/systemd1/job/{self._jobs}"


class LocalSystemd:
    """A D-Bus daemon, and the stub manager connected to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:path={folder / 'bus'}"
        self.manager = LocalManager(folder / "run")
        self._daemon: asyncio.subprocess.Process | None = None
        self._bus: MessageBus | None = None

    async def start(self) -> None:
        """Start the daemon, and register the stub manager."""
        await self.start_bus()
        self._bus = await MessageBus(bus_address=self.address).connect()
        self._bus.export("/org/freedesktop/systemd1", self.manager)
        await self._bus.request_name("org.freedesktop.systemd1")

    async def start_bus(self) -> None:
        """Start the daemon without the stub manager."""
        config = self.folder / "bus.conf"
        config.write_text(_CONFIG.format(socket=self.folder / "bus"))
        self._daemon = await asyncio.create_subprocess_exec(
            *("dbus-daemon", f"--config-file={config}", "--nofork", "--print-address=1"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._daemon.stdout is not None
        assert await self._daemon.stdout.readline()  # it prints its address once it listens

    async def close(self) -> None:
        """Disconnect the stub manager, and stop the daemon."""
        if self._bus is not None:
            self._bus.disconnect()
            await self._bus.wait_for_disconnect()
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGTERM)
        await self._daemon.wait()


def missing_daemon() -> str | None:
    """Return what is missing to run the daemon, or None."""
    return None if shutil.which("dbus-daemon") else "no dbus-daemon here (Debian: dbus-daemon)"


def parse_environment(text: str) -> dict[str, str]:
    """Parse an environment file: comments, and values in double quotes with escapes."""
    variables: dict[str, str] = {}
    at = 0
    while at < len(text):
        if text[at] in "#;":
            at = text.index("\n", at) + 1
            continue
        sign = text.index('="', at)
        value, end = _quoted(text, sign + 2)
        variables[text[at:sign]] = value
        assert text[end] == "\n"
        at = end + 1
    return variables


def _quoted(text: str, at: int) -> tuple[str, int]:
    value = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
            if text[at] not in '"\\`$':
                value.append("\\")
        value.append(text[at])
        at += 1
    return "".join(value), at + 1
