"""Delta tables without Spark: data files, commits, and the catalog of a lake's tables.

    files.py     Parquet files named after their content: write, check, merge
    table.py     one table: its log (delta-rs), and commits on top of a known version
    process.py   whether the process of a run is alive
    catalog.py   the tables of a lake as of its last run: the table `runs`

Spark's tasks import only `files`, which needs pyarrow; the driver also needs deltalake.
"""
