"""Measure what requite does on Spark: `python -m bench.spark WHAT`.

- `bulk`: rows a second of bulk calls to an echo service, and what bounds them.
- `source`: reading the journal, beside the same rows in Parquet.
- `pipeline`: the pipeline over journals of several sizes: seconds and memory.

Everything runs on this machine: Spark in one process with its Python workers, broker and service as
processes of their own. Nothing here asserts a time: figures are reported, beside the goals.
"""
