"""The name under which Spark finds `format("requite")` by itself.

Before its first use of a Python data source, Spark imports every package called `pyspark_*` that it
can find and looks for `DefaultSource`. That import delays the first use of any Python data source,
so as little as possible is loaded here.
"""

from requite.spark.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
