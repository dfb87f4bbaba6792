"""Options of all verbs of `requite spark`: the master, the settings and the memory of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter, validators

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = Group("Spark", sort_key=20)


@Parameter(name="*", group=SPARK)
@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options for the Spark session."""

    master: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            help="Spark master: `local[2]`, `spark://…` or `sc://…`. [default: this process, on "
            "all cores]",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME=VALUE",
            negative_iterable="",
            help="A setting of Spark; repeatable.",
        ),
    ] = None
    heap: Annotated[
        str | None,
        Parameter(
            metavar="SIZE",
            help="Java heap, such as 4g: of this process, or of each executor on a cluster.",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        Parameter(metavar="N", validator=validators.Number(gt=0), help="Tasks per shuffle."),
    ] = None

    @contextmanager
    def session(
        self, app_name: str, more: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        """Start Spark, and stop it at the end, unless it was already running.

        Raises `ConfigurationError` for invalid options.
        """
        from requite.spark.session import Settings, is_running, open_session

        settings = Settings.from_options(self.master, self.conf, self.heap, self.partitions)
        is_ours = not is_running()
        session = open_session(app_name, settings, more)
        try:
            yield session
        finally:
            if is_ours:
                session.stop()


USUAL: Final = SparkOptions()
