"""`requite services`: services, queues and workers of a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter, validators

from requite.cli.failures import advised, is_brokerless, place_of
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import counted, printable, say_json, stdout_console
from requite.cli.presence import unless_refused
from requite.errors import ConfigurationError, RemoteViolation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from requite.client import AsyncClient

Report = dict[str, Any]
"""The reply of `mmi.stats`, with the reply of `mmi.workers` under `workers`."""

# Titles by key. A rare column is left out if it is 0 for all services.
_SERVICE_COLUMNS: Final = {
    "workers": "workers",
    "waiting": "idle",
    "queued": "queued",
    "in_progress": "running",
    "replied": "replied",
    "failed": "failed",
}
_RARE_COLUMNS: Final = {
    "expired": "expired",
    "cancelled": "cancelled",
    "refused": "refused",
    "redelivered": "redelivered",
}
_WORKER_COLUMNS: Final = {
    "worker": "worker",
    "dialect": "MDP",
    "capacity": "capacity",
    "holding": "holding",
    "served": "served",
    "heartbeat_ms": "beat ms",
}
_TEXT_LENGTH_MAX: Final = 1000


def services(
    url: BrokerUrl,
    /,
    *,
    workers: Annotated[
        bool, Parameter(show_default=False, help="Show each worker as well.")
    ] = False,
    watch: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            validator=validators.Number(gt=0),
            help="Refresh at this interval, until Ctrl-C.",
        ),
    ] = None,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Show the services, queues and workers of a broker.

    Asks the broker (`mmi.stats` and `mmi.workers`). Per service: its workers, and
    how many are idle; requests queued and running; and how earlier requests
    ended. A request is redelivered to another worker when its worker is lost.
    Columns that are 0 for all services are left out.

    With --json one object: services, workers, clients, unread, newcomers,
    pending, timers, draining; and pair, for a broker of a pair. `unread` counts
    clients of MDP 0.1 and 0.2 that have reached a limit: the broker does not
    read from them until there is room.

      $ requite services mdp://127.0.0.1:5555 --workers
    """
    from requite.shell.aio import run

    logging.start()
    if is_brokerless(url):
        raise ConfigurationError(f"{place_of(url)} has no broker to ask; try `requite call`")
    with advised(url):
        run(_show(connection.complete(url), connection.dialect, timeout, workers, watch, as_json))


async def _show(
    url: str,
    dialect: str | None,
    timeout_s: float,
    with_workers: bool,
    watch_s: float | None,
    as_json: bool,
) -> None:
    from requite.client import AsyncClient

    async with AsyncClient(url, timeout=timeout_s, dialect=dialect) as client:
        while True:
            report = await unless_refused(client, ask(client))
            if as_json:
                say_json(report)
            else:
                check(report)
                stdout_console().print(render(report, with_workers))
            if watch_s is None:
                return
            await asyncio.sleep(watch_s)


async def ask(client: AsyncClient) -> Report:
    """Query a broker's state. Raises `RemoteViolation` if it is not a broker of requite."""
    stats = await client.call(b"", service="mmi.stats")
    workers = await client.call(b"", service="mmi.workers")
    try:
        report: Report = json.loads(stats.body)
        return report | {"workers": json.loads(workers.body)}
    except (ValueError, TypeError, RecursionError) as error:
        raise RemoteViolation(
            f"the broker answers mmi.stats with {stats.body[:40]!r}: it is not a requite broker"
        ) from error


def check(report: Report) -> None:
    """Check the fields that `render` shows. Raises `RemoteViolation` if one is missing, or of
    another type."""
    from requite.protocols.majordomo import answers
    from requite.protocols.majordomo.reading import pair_in

    try:
        answers.flag_of(report, "draining")
        _check_counts(report, ("clients", "pending"))
        answers.count_of({"unread": 0} | report, "unread")
        if "pair" in report:
            pair_in(answers.facts_in(report["pair"], "pair"))
        for row in answers.rows_of(answers.field_of(report, "services"), "services"):
            answers.text_of(answers.facts_in(row, "a service"), "service")
            _check_counts(row, _SERVICE_COLUMNS | _RARE_COLUMNS)
        for row in answers.rows_of(report["workers"], "workers"):
            answers.text_of(answers.facts_in(row, "a worker"), "service")
            _check_counts(row, _WORKER_COLUMNS.keys() - {"worker", "dialect"})
            answers.text_of(row, "worker", answers.ADDRESS_LENGTH_MAX)
            answers.text_of(row, "dialect")
    except ValueError as error:
        raise RemoteViolation(
            f"the broker's answer to mmi.stats or mmi.workers cannot be shown ({error}): it is not"
            " a requite broker, or one of another version; --json prints the answer as it is"
        ) from error


def _check_counts(facts: dict[str, Any], names: Iterable[str]) -> None:
    from requite.protocols.majordomo.answers import count_of

    for name in names:
        count_of(facts, name)


def render(report: Report, with_workers: bool) -> RenderableType:
    """Draw the report as tables, with one line about the broker as a whole."""
    from rich.console import Group

    whole = (
        f"{counted(report['clients'], 'client')} (this command is one), "
        f"{counted(report['pending'], 'request')} pending"
    )
    if unread := report.get("unread"):
        whole += f"; {counted(unread, 'client')} not read from, because of a limit"
    parts: list[RenderableType] = [whole + ("; draining" if report["draining"] else "")]
    if "pair" in report:
        parts.append(_shown(_standing(report["pair"])))
    rows = report["services"]
    if rows:
        rare = {key: title for key, title in _RARE_COLUMNS.items() if any(row[key] for row in rows)}
        parts.append(_table(rows, _SERVICE_COLUMNS | rare))
    else:
        parts.append("no services: no worker has registered, and no client has sent a request")
    if with_workers and report["workers"]:
        parts.append(_table(report["workers"], _WORKER_COLUMNS))
    return Group(*parts)


def _standing(pair: Report) -> str:
    """Describe the broker's role in its pair, and the state of its peer."""
    other = "backup" if pair["role"] == "primary" else "primary"
    if pair["peer"] is None:
        heard = "has not been heard yet"
    elif pair["peer_is_silent"]:
        heard = f"has been silent for {pair['heard_s_ago']:.0f} s"
    else:
        heard = f"is {pair['peer']}"
    return (
        f"{pair['role']} of a pair, {pair['state']} in epoch {pair['epoch']}; the {other} {heard}"
    )


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("service", box=SIMPLE_HEAD, pad_edge=False)
    for title in columns.values():
        table.add_column(title, justify="right")
    for row in rows:
        name = row["service"] + (" (paused)" if row.get("paused") else "")
        table.add_row(_shown(name), *_cells(row, columns))
    return table


def _cells(row: dict[str, Any], columns: Iterable[str]) -> list[Text]:
    values = [row[key] for key in columns]
    return [_shown(f"{each:,}" if isinstance(each, int) else str(each)) for each in values]


def _shown(text: str) -> Text:
    """Return a text of a peer: nothing in it is markup, or controls the terminal."""
    from rich.text import Text

    if len(text) > _TEXT_LENGTH_MAX:
        text = text[: _TEXT_LENGTH_MAX - 1] + "…"
    return Text(printable(text))
