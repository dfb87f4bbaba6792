"""The options of servers that show their metrics, and whether they work, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite import __build__, __version__
from requite.cli.options import POSITIVE, within
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.metrics.monitor import Monitor, Watched, WebPage

METRICS: Final = Group("Metrics", sort_key=87)
NAMED_MAX: Final = 100


def _parse_place(text: str) -> None:
    from requite.web.place import parse_place

    parse_place(text)


@Parameter(name="*", group=METRICS)
@dataclass(frozen=True, slots=True)
class Watching:
    """Metrics, health and readiness over HTTP."""

    http: Annotated[
        str | None,
        Parameter(
            metavar="HOST:PORT",
            env_var="REQUITE_HTTP",
            validator=within(_parse_place),
            help="Serve /metrics (Prometheus), /health and /ready here, to everybody who can "
            "connect, and the web page of a broker. `:9464` is port 9464 of loopback; port 0 "
            "chooses a free port.",
        ),
    ] = None
    http_host: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            show_default=False,
            help="Accept requests with this host in their URL, too, such as the name of a "
            "Service of Kubernetes; repeatable.",
        ),
    ] = ()

    def monitor(
        self,
        command: str,
        watch: Callable[[], Watched],
        page: Callable[[], WebPage] | None = None,
    ) -> Monitor | None:
        """Return the monitor of a command; None without --http. `watch` returns what it shows, and
        `page` its page, if the packages of that are installed.
        Raises `ConfigurationError`, also if a package is missing."""
        if self.http is None:
            if self.http_host:
                raise ConfigurationError("--http-host requires --http")
            return None
        try:
            from requite.metrics.monitor import Monitor
            from requite.metrics.process import Process
            from requite.web.place import parse_place

            watched = watch()
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"--http requires the package {error.name}, which is not installed: pip install"
                " 'requite[metrics]'"
            ) from error
        process = Process(__version__, __build__, command)
        made = None if page is None or find_spec("jinja2") is None else page()
        return Monitor(parse_place(self.http), process, watched, self.http_host, made)


@Parameter(name="*", group=METRICS)
@dataclass(frozen=True, slots=True)
class WatchingServices(Watching):
    """Metrics of a server that has any number of services."""

    metrics_services: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=POSITIVE,
            help="Services that have metrics of their own: those with most requests. All others "
            "are one, `other`.",
        ),
    ] = NAMED_MAX


UNWATCHED: Final = Watching()
UNWATCHED_SERVICES: Final = WatchingServices()
