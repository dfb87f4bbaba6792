"""`format("requite")`: the journal as a table or a stream, and a sink that sends rows as requests.

    spark.read.format("requite").load("journal")
    spark.readStream.format("requite").option("maxBytesPerTrigger", "64m").load("journal")

The rows have the columns of `requite.spark.schemas.SOURCE`. Undecodable data gives a row with `raw`
and `reason`: it is not dropped, and does not make the read fail.

| option for reading | |
|---|---|
| `columns` | comma-separated names: only these columns, in this order. This saves most of the work. |
| `partitionBytes` | maximum bytes of the journal per task (default 8m) |
| `maxBytesPerTrigger` | maximum bytes per micro-batch (default: no limit) |
| `pushdown` | `true`: skip data that filters exclude, for sessions with `spark.sql.python.filterPushdown.enabled`; the default if `requite.spark.session` created the session |
| `log` | `journal`; or `titanic`: the requests that a Titanic stores in a folder (columns: `requite.spark.schemas.TITANIC`), as a table only |

    options.py      checks the options
    selection.py    the data that filters select
    ranges.py       parts of segments, divided among tasks
    reading.py      reads a part in a task
    batch.py        the table
    marks.py        the positions that a stream has reached
    stream.py       the stream
    reread.py       skipped segments, which are read again when they change
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "requite"


class JournalSource(DataSource):
    """The data source that Spark uses. It is pickled often, so it imports the rest on demand."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format("requite")`."""
        return FORMAT

    def schema(self) -> str:
        """Return the selected columns. Raises `ConfigurationError`."""
        from requite.spark.source.options import read_options, schema_of

        return schema_of(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises `ConfigurationError`."""
        from requite.spark.source.options import TITANIC_LOG, check_schema, read_options

        options = read_options(self.options)
        columns = check_schema(schema, options)
        if options.log == TITANIC_LOG:
            from requite.spark.durable.reader import TitanicReader

            return TitanicReader(options, columns)
        from requite.spark.source.batch import JournalReader, PushingJournalReader

        return (PushingJournalReader if options.pushdown else JournalReader)(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises `ConfigurationError`."""
        from requite.errors import ConfigurationError
        from requite.spark.source.options import TITANIC_LOG, check_schema, read_options
        from requite.spark.source.stream import JournalStreamReader

        options = read_options(self.options)
        if options.log == TITANIC_LOG:
            raise ConfigurationError(
                "the requests of Titanic are a table, not a stream: use spark.read"
            )
        return JournalStreamReader(options, check_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer that sends a DataFrame's rows (`requite.spark.sink.writer`)."""
        from requite.spark.sink.writer import arrow_writer

        return arrow_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer that sends the rows of each micro-batch."""
        from requite.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
