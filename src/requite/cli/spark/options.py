"""Where Spark runs, and how: the options of all verbs of `requite spark`."""

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
    """The options."""

    master: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            help="Where Spark runs: `local[2]`, `spark://…` or `sc://…`; without, in this process, "
            "on all cores.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME=VALUE",
            negative_iterable="",
            help="A setting of Spark's; as often as needed.",
        ),
    ] = None
    heap: Annotated[
        str | None,
        Parameter(
            metavar="SIZE",
            help="Java's memory where tasks run, such as 4g: in this process, or of each executor.",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        Parameter(
            metavar="N", validator=validators.Number(gt=0), help="How many tasks a shuffle has."
        ),
    ] = None

    @contextmanager
    def session(
        self, app_name: str, more: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        """Start Spark, and stop it at the end, unless it was running already.

        Raises `ConfigurationError` for options that cannot work.
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
