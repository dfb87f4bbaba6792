"""`format("requite")`: the journal as a table, as a stream, and requests made of rows.

    spark.read.format("requite").load("journal")
    spark.readStream.format("requite").option("maxBytesPerTrigger", "64m").load("journal")

The rows have the columns of `requite.spark.schemas.SOURCE`. What does not decode is a row as well,
with `raw` set and `reason` saying why: nothing is dropped, and nothing fails the whole read.

| option for reading | |
|---|---|
| `columns` | names, separated by commas: only these, in this order. It saves most of the work. |
| `partitionBytes` | how many bytes of the journal a task reads at most (default 8m) |
| `maxBytesPerTrigger` | how many bytes a micro-batch has at most (default: all there is) |
| `pushdown` | `true`: skip what filters exclude, for sessions that have `spark.sql.python.filterPushdown.enabled`; by default where `requite.spark.session` made the session |
| `log` | `journal`; or `titanic`: the requests that a Titanic keeps in a folder (columns: `requite.spark.schemas.TITANIC`), as a table alone |

    options.py      checks all that
    selection.py    what filters exclude
    ranges.py       parts of segments, shared out to tasks
    reading.py      what a task does
    batch.py        the table
    marks.py        up to where a stream has read
    stream.py       the stream
    reread.py       segments that were skipped, and are read again when they change
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
    """What Spark asks for. It is pickled and sent around, and loads the rest only when asked."""

    @classmethod
    def name(cls) -> str:
        """The name that stands in `format("requite")`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns that are asked for. Raises `ConfigurationError`."""
        from requite.spark.source.options import read_options, schema_of

        return schema_of(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises `ConfigurationError`."""
        from requite.spark.source.options import KEPT, check_schema, read_options

        options = read_options(self.options)
        columns = check_schema(schema, options)
        if options.log == KEPT:
            from requite.spark.durable.reader import KeptReader

            return KeptReader(options, columns)
        from requite.spark.source.batch import JournalReader, PushingJournalReader

        return (PushingJournalReader if options.pushdown else JournalReader)(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises `ConfigurationError`."""
        from requite.errors import ConfigurationError
        from requite.spark.source.options import KEPT, check_schema, read_options
        from requite.spark.source.stream import JournalStreamReader

        options = read_options(self.options)
        if options.log == KEPT:
            raise ConfigurationError("what Titanic keeps is a table and no stream: use spark.read")
        return JournalStreamReader(options, check_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what makes requests of a DataFrame's rows (`requite.spark.sink.writer`)."""
        from requite.spark.sink.writer import arrow_writer

        return arrow_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what makes requests of the rows of each micro-batch."""
        from requite.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
