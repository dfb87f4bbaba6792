"""The driver for workers that are services of systemd: instances of a template unit, over D-Bus.

A template for the pool `core` and the instance `default`, core.default@.service:

    [Service]
    EnvironmentFile=/run/requite/core.default/%i.env
    ExecStart=/opt/shop/bin/requite worker shop:price --pool
    Restart=on-failure

Source: org.freedesktop.systemd1(5). dbus-fast is the D-Bus client: it runs on asyncio, and needs
no system library and no compiled extension.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbus_fast import BusType, DBusError, ErrorType, Message, MessageType
from dbus_fast.aio import MessageBus

from requite.errors import ConfigurationError
from requite.pool.drivers.base import (
    DriverError,
    Environment,
    KeyedTurns,
    Label,
    check_environment,
    check_workers,
    variables_of,
)
from requite.pool.drivers.units import Units
from requite.pool.inputs import RunningGroup

_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_MANAGER: Final = "org.freedesktop.systemd1.Manager"
_NO_SUCH_UNIT: Final = "org.freedesktop.systemd1.NoSuchUnit"
_ALIVE: Final = ("active", "activating", "reloading", "deactivating")
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class SystemdSettings:
    """Settings of workers as services.

    - `template`: the template unit, without `@.service`; it must belong to this pool and instance
      alone. Empty: POOL.INSTANCE.
    - `env`: variables in addition to those of the worker protocol, NAME=VALUE.
    - `environment_dir`: folder of the files for `EnvironmentFile=`, in a subfolder with the
      template's name.
    - `bus`: `system`, `user`, or the address of a bus.
    """

    template: str = ""
    env: tuple[str, ...] = field(default=(), repr=False)
    environment_dir: str = "/run/requite"
    bus: str = "system"

    def __post_init__(self) -> None:
        if "@" in self.template or "/" in self.template:
            raise ConfigurationError("driver.template: write the name without @.service")
        variables_of(self.env)


class SystemdDriver:
    """Runs workers as services."""

    workers_max: int = 1

    def __init__(self, settings: SystemdSettings, label: Label, environment: Environment) -> None:
        self._settings: Final = settings
        self._label: Final = label
        self._environment: Final = environment
        self._template: Final = settings.template or label.prefix
        self._units: Final = Units(self._template, Path(settings.environment_dir))
        self._turns: Final = KeyedTurns()
        self._connecting: Final = asyncio.Lock()
        self._bus: MessageBus | None = None

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups whose unit is running, starting or stopping."""
        patterns: Any = [self._units.pattern]
        [found] = await self._call("ListUnitsByPatterns", "asas", [[*_ALIVE], patterns])
        states = {unit[0]: unit[3] for unit in found}
        self._units.sweep(set(states))
        groups = {}
        for unit, state in states.items():
            identity = self._units.identity_of(unit)
            groups[identity.key] = RunningGroup(identity.version, 1, state == "deactivating")
        return groups

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start the unit of a key, unless it runs."""
        check_workers(workers, self.workers_max)
        async with self._turns.of(key):
            if key in await self.list():
                return
            ours = check_environment(self._environment(key, f"{self._label.prefix}-{_random()}"))
            try:
                self._units.write(key, version, {**variables_of(self._settings.env), **ours})
            except OSError as error:
                raise DriverError(f"driver.environment_dir: {error}") from error
            await self._call("StartUnit", "ss", [self._units.name_of(key), "replace"])

    async def stop(self, key: str) -> None:
        """Stop the unit of a key; `TimeoutStopSec=` limits how long that takes."""
        async with self._turns.of(key):
            name = self._units.name_of(key)
            await self._call("StopUnit", "ss", [name, "replace"], ignore=_NO_SUCH_UNIT)

    async def close(self) -> None:
        """Disconnect from the bus."""
        if self._bus is not None:
            self._bus.disconnect()

    # --- D-Bus ------------------------------------------------------------------------------------
    async def _call(self, member: str, signature: str, body: Any, *, ignore: str = "") -> Any:
        """Call a method of systemd's manager; return its result. Raises `DriverError`."""
        bus = await self._connected()
        message = Message(
            destination=_NAME,
            path=_PATH,
            interface=_MANAGER,
            member=member,
            signature=signature,
            body=body,
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await bus.call(message)
        except (OSError, EOFError, TimeoutError, DBusError) as error:
            raise DriverError(f"driver.bus: no answer from systemd: {error!r}") from error
        if answer.message_type is MessageType.METHOD_RETURN:
            return answer.body
        if answer.error_name == ignore:
            return []
        raise DriverError(self._refusal(member, answer))

    def _refusal(self, member: str, answer: Message) -> str:
        text = f"{answer.error_name}: {answer.body[0] if answer.body else ''}"
        if answer.error_name == _NO_SUCH_UNIT:
            return f"driver.template: the unit {self._template}@.service does not exist ({text})"
        if answer.error_name == ErrorType.SERVICE_UNKNOWN.value:
            return f"driver.bus: systemd is not on this bus ({text})"
        return f"systemd refused {member}: {text}"

    async def _connected(self) -> MessageBus:
        """Return the connection to the bus; reconnect if it was lost."""
        async with self._connecting:
            if self._bus is None or not self._bus.connected:
                self._bus = await self._connect()
            return self._bus

    async def _connect(self) -> MessageBus:
        try:
            return await _bus_of(self._settings.bus).connect()
        except (OSError, EOFError, ValueError, DBusError) as error:
            raise DriverError(
                f"driver.bus: cannot reach {self._settings.bus!r}: {error}"
            ) from error


def _bus_of(bus: str) -> MessageBus:
    match bus:
        case "system":
            return MessageBus(bus_type=BusType.SYSTEM)
        case "user":
            return MessageBus(bus_type=BusType.SESSION)
    return MessageBus(bus_address=bus)


def _random() -> str:
    return os.urandom(6).hex()
