"""Faults: their kinds, and when a fault happens for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class FaultKind(StrEnum):
    """The kinds of faults of all protocols; a run has those that `Injector.kinds` names."""

    # a process, by its role
    CRASH_BROKER = "crash-broker"
    CRASH_CLIENT = "crash-client"
    CRASH_DEVICE = "crash-device"
    CRASH_MANAGER = "crash-manager"
    CRASH_MIDDLE = "crash-middle"
    CRASH_RABBIT = "crash-rabbit"
    CRASH_SERVER = "crash-server"
    CRASH_WORKER = "crash-worker"
    FREEZE_BROKER = "freeze-broker"
    FREEZE_CLIENT = "freeze-client"
    FREEZE_DEVICE = "freeze-device"
    FREEZE_MIDDLE = "freeze-middle"
    FREEZE_RABBIT = "freeze-rabbit"
    FREEZE_SERVER = "freeze-server"
    FREEZE_WORKER = "freeze-worker"
    DRAIN_BROKER = "drain-broker"
    DRAIN_CLIENT = "drain-client"
    DRAIN_DEVICE = "drain-device"
    DRAIN_MANAGER = "drain-manager"
    DRAIN_MIDDLE = "drain-middle"
    DRAIN_SERVER = "drain-server"
    DRAIN_WORKER = "drain-worker"
    KILL = "kill"  # Titanic crashes, at the next operation of the disk or at once
    POWER_LOSS = "power-loss"  # connections drop without a FIN; data that is not synced is lost
    SWITCH = "switch"  # an operator requests a switch of a pair
    # an operator changes the access file of a broker, and restores it later
    REVOKE_RIGHT = "revoke-right"
    REMOVE_USER = "remove-user"
    LOWER_QUOTA = "lower-quota"
    # the network
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    CLOG = "clog"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    SLOW_READER = "slow-reader"
    CUT_CALLER = "cut-caller"
    CUT_MANAGER = "cut-manager"
    CUT_WORKER = "cut-worker"
    # services and disks
    BROKER_DOWN = "broker-down"
    SERVICE_DOWN = "service-down"
    DISK_FAILS = "disk-fails"
    DISK_FULL = "disk-full"
    FLIP = "flip"  # the disk changes a bit
    # RabbitMQ, and the drivers of pools
    BLOCK = "block"  # RabbitMQ accepts no messages
    CLOSE_CHANNEL = "close-channel"  # RabbitMQ closes a channel
    CLOSE_CONNECTION = "close-connection"
    DELETE_QUEUE = "delete-queue"
    DELETE_REPLIES = "delete-replies"
    MEDDLE = "meddle"  # an operator unbinds or deletes a queue
    REFUSE = "refuse"  # queues reject messages, or RabbitMQ refuses operations on a key's queue
    RESTART_RABBIT = "restart-rabbit"
    API_FAILS = "api-fails"
    API_SLOW = "api-slow"
    DRIVER_FAILS = "driver-fails"
    DRIVER_SLOW = "driver-slow"
    # garbage
    GARBAGE = "garbage"  # messages that no peer should send
    INTRUDER = "intruder"  # connections that send garbage


LINKS: Final = (
    FaultKind.PARTITION,
    FaultKind.PARTITION_ONE_WAY,
    FaultKind.CLOG,
    FaultKind.RESET,
    FaultKind.BLACK_HOLE,
)
"""The faults of connections, which every simulated network has."""


def faults_of(*roles: str, more: Sequence[FaultKind] = ()) -> tuple[FaultKind, ...]:
    """Return the faults of a cast with these roles; `more` are those of its protocol."""

    def of(verb: str) -> Iterator[FaultKind]:
        known = frozenset(FaultKind)
        return (FaultKind(f"{verb}-{role}") for role in roles if f"{verb}-{role}" in known)

    return (*of("crash"), FaultKind.POWER_LOSS, *of("freeze"), *LINKS, *of("drain"), *more)


class Fault(NamedTuple):
    """A fault at `at_s` that lasts for `duration_s`. `lot` in [0, 1) chooses the victim."""

    at_s: float
    kind: str
    duration_s: float
    lot: float
