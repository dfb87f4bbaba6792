"""`requite pool run`: manage a pool of keyed workers, on RabbitMQ or a broker of MDP."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from requite.cli.options import QUIET, JournalFolder, Logging
from requite.cli.output import say
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.metrics.monitor import WebPage
    from requite.pool.config import PoolConfig
    from requite.pool.manager.carrier import State
    from requite.pool.manager.managed import Managed


def run(
    *,
    config: Annotated[
        Path, Parameter(metavar="FILE", help="The settings of the pool, as TOML.")
    ] = Path("pool.toml"),
    broker: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            show_default=False,
            help="Use an MDP broker instead of RabbitMQ: `mdp://HOST:PORT`. Short for --set"
            " broker.url=URL.",
        ),
    ] = None,
    set_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            metavar="SECTION.NAME=VALUE",
            show_default=False,
            help="Override a setting; repeat it for several. Variables such as "
            "REQUITE_POOL__RABBITMQ__URL override the file, too.",
        ),
    ] = (),
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    logging: Logging = QUIET,
) -> int:
    """Manage a pool of workers on RabbitMQ.

    A group of workers, one per key, is started with the first request for its
    key, and stopped after a while without requests. RabbitMQ routes requests to
    workers; the manager receives only requests whose key has no group.

    It prints the URL for `requite pool status`, where a browser shows the pool
    with the extra web, and whether it is active or on standby because another
    manager is active.

    SIGTERM or Ctrl-C drains: the manager finishes deliveries in progress, stops
    the groups (pool.stop_groups_on_exit), and exits with code 0. A second signal
    stops it at once.

    With --broker, groups are services POOL/KEY of a broker of MDP, which the
    manager polls for waiting requests.

      $ requite pool run --config pool.toml
      $ requite pool run --config pool.toml --set pool.version=7 --set http.port=0
      $ requite pool run --broker mdp://127.0.0.1:5555
    """
    from requite.cli.serving import run_until_stopped

    logging.start()
    settings = read(config, set_ if broker is None else (*set_, f"broker.url={broker}"))
    try:
        from requite.pool.manager import PoolManager
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the pool manager requires the package {error.name}, which is not installed: pip"
            " install 'requite[pool]'"
        ) from error
    name = settings.pool.name
    where = "the broker" if settings.broker.url else "RabbitMQ"
    manager = PoolManager(
        settings,
        on_state=lambda state: _tell(name, where, state),
        journal=journal_option(journal, journal_retain, journal_ship),
        page=None if find_spec("jinja2") is None else _page,
    )
    return run_until_stopped(manager, lambda: say(f"pool {name} at {manager.url}"))


def read(file: Path, overrides: tuple[str, ...]) -> PoolConfig:
    """Read the settings of a pool. Raises `ConfigurationError`."""
    from requite.pool.config import read_config

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {file}: {error}") from error
    flags = {}
    for override in overrides:
        setting, sign, value = override.partition("=")
        if not sign or "." not in setting:
            raise ConfigurationError(f"--set: {override!r} is not SECTION.NAME=VALUE")
        flags[setting] = value
    return read_config(text, os.environ, flags, str(file))


def _page(manager: Managed) -> WebPage:
    from requite.page.pool import PoolPage

    return PoolPage(manager)


_SAID = {
    "connecting": "pool {name}: connecting to {where}",
    "standby": "pool {name}: standing by, another manager is active",
    "active": "pool {name}: active",
}


def _tell(name: str, where: str, state: State) -> None:
    if state in _SAID:
        say(_SAID[state].format(name=name, where=where))
