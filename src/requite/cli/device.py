"""`requite device`: forward requests and replies of SP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.access.options import AccessFile, Insecure
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.options import (
    BOUND_URLS,
    LIMITS,
    QUIET,
    URLS,
    JournalFolder,
    Logging,
    MessageSizeMax,
    one_of,
    within,
)
from requite.cli.output import say
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.tls import NO_TLS, Tls
from requite.cli.watching import UNWATCHED, Watching
from requite.framing import Limits
from requite.protocols.scalability.policy import DevicePolicy
from requite.speaks.url import redact

if TYPE_CHECKING:
    from requite.metrics.monitor import Watched
    from requite.sp import Device

_FRONT: Final = Group("Front", sort_key=5, validator=one_of("--front", "--front-connect"))
_BACK: Final = Group("Back", sort_key=10, validator=one_of("--back", "--back-bind"))
_HOPS: Final = 8
_MESSAGE_SIZE_MAX: Final = Limits().message_size_bytes_max


def device(
    *,
    front: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=BOUND_URLS,
            group=_FRONT,
            consume_multiple=True,
            show_default=False,
            help="Listen here for clients: `sp+tcp://HOST:PORT`, `sp+ipc:///PATH`, `sp+tls://`, "
            "`sp+ws://HOST:PORT/PATH` or `sp+wss://`. Port 0 chooses a free port.",
        ),
    ] = (),
    back: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=URLS,
            group=_BACK,
            consume_multiple=True,
            show_default=False,
            help="Connect to services, or to further devices, at these URLs.",
        ),
    ] = (),
    front_connect: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=URLS,
            group=_FRONT,
            consume_multiple=True,
            show_default=False,
            help="Connect to clients that listen at these URLs.",
        ),
    ] = (),
    back_bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="URL",
            validator=BOUND_URLS,
            group=_BACK,
            consume_multiple=True,
            show_default=False,
            help="Listen here for services that connect.",
        ),
    ] = (),
    hops: Annotated[
        int,
        Parameter(
            metavar="N",
            group=LIMITS,
            validator=within(lambda hops: DevicePolicy(hops=hops)),
            help="Drop requests whose stack would exceed N tags, one per device and one of the "
            "client: a guard against loops.",
        ),
    ] = _HOPS,
    message_size_max: MessageSizeMax = _MESSAGE_SIZE_MAX,
    access: AccessFile = None,
    insecure: Insecure = False,
    tls: Tls = NO_TLS,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    watching: Watching = UNWATCHED,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Forward requests of SP to services, and their replies back.

    Clients, or devices nearer to them, are at the front; services are at the
    back. Each request goes to the next service that accepts it, over any
    transport. An option takes several URLs, and may be repeated. It prints one
    line per URL: `listening on URL for clients`, `connecting to URL for services`.

    A device stores nothing: if it stops, clients send the requests in flight
    again. SIGTERM or Ctrl-C stops it with exit code 0, after a short time for
    the replies in flight.

      $ requite device --front sp+ws://127.0.0.1:80/rpc --back sp+ipc:///run/echo
      $ requite device --front sp+tcp://127.0.0.1:0 --back-bind sp+tcp://127.0.0.1:0
    """
    from requite.cli.serving import run_until_stopped
    from requite.sp import Device

    logging.start()
    fronts, backs = tls.complete(front, back_bind)
    server = Device(
        front=fronts,
        back=backs,
        connect_front=front_connect,
        connect_back=back,
        hops=hops,
        message_size_max=message_size_max,
        access=access,
        insecure=insecure,
        journal=journal_option(journal, journal_retain, journal_ship),
    )
    monitor = watching.monitor("device", lambda: _watched(server))
    if setup.check:
        listening = " and ".join(redact(url) for url in (*front, *back_bind))
        dialled = " and ".join(redact(url) for url in (*front_connect, *back))
        return setup.report(
            f"the device would listen on {listening}" if listening else None,
            f"and connect to {dialled}" if dialled else None,
            folders={"--journal": journal},
        )

    def announce() -> None:
        _announce("clients", server.front_addresses, front_connect)
        _announce("services", server.back_addresses, back)

    return run_until_stopped(server, announce, monitor=monitor)


def _watched(server: Device) -> Watched:
    from requite.metrics.servers import of_device
    from requite.metrics.watched import WatchedServer

    return WatchedServer(server, lambda: of_device(server.snapshot()))


def _announce(whom: str, listening: list[str], connecting: tuple[str, ...]) -> None:
    for url in listening:
        say(f"listening on {url} for {whom}")
    for url in connecting:
        say(f"connecting to {redact(url)} for {whom}")
