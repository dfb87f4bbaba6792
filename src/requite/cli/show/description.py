"""What a demo consists of: roles, a client, traffic and faults, described as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Action = Callable[[Any], Awaitable[None]]
"""Takes the `Run` of the demo, or the subclass of it that the demo names."""


@dataclass(frozen=True, slots=True)
class Role:
    """Processes that run one command of requite.

    `name` and `command` are templates. `{n}` is the number of the process (from 1), `{own}` its
    address, `{workers}` the addresses of all workers, `{folder}` a temporary folder. Each other
    name is an address (host and port), the same one wherever the demo uses this name.

    `count` None: as many as `--workers`. A process is ready once it prints a line that matches
    `ready`.
    """

    name: str
    command: str
    count: int | None = 1
    ready: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Actions that follow each other, as often as the option `amount` says.

    `amount` None: once, in the middle.
    """

    amount: str | None
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Demo:
    """A pattern of reliable request-reply: its processes, clients, traffic and faults.

    `run` is the subclass of `Run` that runs it. `brokers` are the processes between clients and
    workers; each is ready before the next one starts. `url` is a template, as in `Role`. `client`
    has further arguments of `AsyncClient`. `traffic` makes the calls of one client. With
    `is_audited`, all parts write a journal. Requests that are unanswered after `time_limit_s` count
    as lost.
    """

    run: type[Any]
    workers: Role | None
    url: str
    traffic: Callable[[Any, Any], Awaitable[None]]
    faults: tuple[Fault, ...]
    brokers: tuple[Role, ...] = ()
    client: Mapping[str, Any] = field(default_factory=dict)
    connection_per_call: bool = False
    is_audited: bool = False
    time_limit_s: float = 100.0
