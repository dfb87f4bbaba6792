"""Measure requite on Spark: `python -m bench.spark WHAT`.

- `bulk`: rows per second of bulk calls to an echo service, and their bottleneck.
- `source`: reading the journal, compared with the same rows in Parquet.
- `pipeline`: seconds and memory of the pipeline over journals of several sizes.

All processes run on this machine: Spark with its Python workers, the broker and the service. No
benchmark asserts a time; figures are reported with the goals.
"""
