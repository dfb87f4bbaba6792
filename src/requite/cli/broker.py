"""`requite broker`: run a broker."""

from __future__ import annotations

import asyncio
import logging as std_logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from requite.cli.broker_options import Limits, Liveness, Peers, Requests, Titanic, broker_policy
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.credentials import curve_listener, read_users
from requite.cli.options import QUIET, JournalFolder, Logging, complete_ones, within
from requite.cli.output import complain, counted, say
from requite.cli.pairing import ALONE, Pairing
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.titanic.options import IN_MEMORY
from requite.cli.tls import NO_TLS, Tls
from requite.cli.watching import UNWATCHED_SERVICES, WatchingServices
from requite.errors import ConfigurationError
from requite.shell.link import LinkLimits

if TYPE_CHECKING:
    from requite.broker import Broker
    from requite.cli.serving import Reload
    from requite.metrics.monitor import Watched, WebPage
    from requite.zap import Zap

_DEFAULT_BIND: Final = ("tcp://127.0.0.1:5555",)
_LIVENESS, _REQUESTS, _LIMITS, _PEERS = Liveness(), Requests(), Limits(), Peers()
_NO_STORE: Final = Titanic()
_log = std_logging.getLogger("requite.cli")


def _broker_at(addresses: tuple[str, ...]) -> None:
    from requite.broker import Broker

    Broker(*complete_ones(addresses), insecure=True)


def broker(
    *,
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ADDRESS",
            validator=within(_broker_at),
            show_default=" ".join,
            help="Listen here: `tcp://HOST:PORT`, `tls://HOST:PORT` or `ipc:///PATH`; repeatable. "
            "Port 0 chooses a free port. For other machines, bind to an address of the network, "
            "such as `tls://0.0.0.0:5555`.",
        ),
    ] = _DEFAULT_BIND,
    liveness: Liveness = _LIVENESS,
    requests: Requests = _REQUESTS,
    limits: Limits = _LIMITS,
    peers: Peers = _PEERS,
    tls: Tls = NO_TLS,
    store: Titanic = _NO_STORE,
    pairing: Pairing = ALONE,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    watching: WatchingServices = UNWATCHED_SERVICES,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Run a broker that clients and workers connect to.

    It prints `listening on ADDRESS` for each endpoint. Clients and workers of MDP
    0.1, 0.2 and 0.3 may connect to the same address. Requests wait in memory;
    after a restart of the broker, clients send them again. With --titanic the
    broker stores submitted requests (`requite call --submit`) on disk until they
    are answered.

    --primary or --backup makes it one of two brokers, of which one is active.
    Clients and workers connect to `mdp://A:5555,B:5555`, and use the active one.

    SIGTERM or Ctrl-C drains: the broker accepts no new requests, finishes pending
    ones, and exits with 0. A second signal stops it at once. SIGHUP reads
    --access and --credentials-file again; it drains a broker whose terminal was
    closed.

      $ requite broker --bind tcp://127.0.0.1:0 --heartbeat-interval 0.5
    """
    from requite.broker import Broker
    from requite.cli.serving import collect_rarely, run_until_stopped

    logging.start()
    if store.titanic_memory:
        complain(IN_MEMORY)
    file = peers.credentials_file
    users = None if file is None else read_users(file)
    binds, links = tls.complete(bind, pairing.links)
    pair = pairing.make(links, insecure=peers.insecure)
    server = Broker(
        *binds,
        policy=broker_policy(liveness, requests, limits, peers),
        access=peers.access,
        authenticate=_authenticator(peers),
        insecure=peers.insecure,
        users=users,
        curve=curve_listener(peers.curve_key_file, peers.curve_clients, peers.access),
        message_size_max=limits.message_size_max,
        links=LinkLimits(partial_size_max=limits.partial_size_max),
        journal=journal_option(journal, journal_retain, journal_ship),
        titanic=store.settings(),
        pair=pair,
    )
    monitor = watching.monitor(
        "broker",
        lambda: _watched(server, watching.metrics_services),
        lambda: _page(server, journal, insecure=peers.insecure),
    )
    if setup.check:
        return setup.report(
            f"the broker would listen on {' and '.join(bind)}",
            None if pair is None else f"as one of a pair, linked by {pairing.pair_bind}",
            None if users is None else f"for {counted(len(users), 'user')} of {file}",
            None if peers.access is None else f"for the users of {peers.access}",
            None if peers.zap is None else f"asking the ZAP handler at {peers.zap}",
            None if monitor is None else f"with metrics at {watching.http}",
            folders={"--titanic": store.titanic, "--journal": journal},
        )
    until_failed = None if pair is None else pair.until_failed
    collect_rarely()
    return run_until_stopped(
        server,
        lambda: _announce(server.endpoints),
        until_failed,
        server.until_over,
        _reloader(server, peers),
        monitor,
    )


def _watched(server: Broker, named_max: int) -> Watched:
    from requite.metrics.watched import WatchedBroker

    return WatchedBroker(server, named_max)


def _page(server: Broker, journal: Path | None, *, insecure: bool) -> WebPage:
    from requite.page.page import Page
    from requite.story.searcher import Searcher

    searcher = None if journal is None else Searcher([journal])
    return Page(server, guard=server.guard, searcher=searcher, insecure=insecure)


def _authenticator(peers: Peers) -> Zap | None:
    if peers.zap is None:
        return None
    if peers.access is None:
        raise ConfigurationError("--zap requires --access: the handler may only refuse its users")
    from requite.zap import Zap

    return Zap(peers.zap, domain=peers.zap_domain, insecure=peers.insecure)


def _reloader(server: Broker, peers: Peers) -> Reload | None:
    """Return what SIGHUP does: read the file of users again, if there is one."""
    file = peers.credentials_file
    if file is not None:
        return lambda: _admit(server, file)
    return None if peers.access is None else lambda: _read_access(server)


async def _read_access(server: Broker) -> None:
    """Read the access file again; keep the users as they were if it is bad."""
    try:
        await server.read_access()
    except ConfigurationError as error:
        _log.warning("SIGHUP: the users and their rights remain as they were: %s", error)


async def _admit(server: Broker, file: Path) -> None:
    """Read the users again, for new connections; keep the old ones if the file is bad."""
    try:
        users = await asyncio.to_thread(read_users, file)
        server.admit(users)
    except ConfigurationError as error:
        _log.warning("SIGHUP: the users remain as they were: %s", error)
    else:
        _log.info("SIGHUP: read %s of %s", counted(len(users), "user"), file)


def _announce(endpoints: list[str]) -> None:
    for endpoint in endpoints:
        say(f"listening on {endpoint}")
