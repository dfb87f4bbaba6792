"""Delta tables without Spark: data files, commits, and the catalog of a lake's tables.

    files.py     Parquet files that are named after their content: written, checked, merged
    table.py     one table: its log (delta-rs), and commits that succeed on one version only
    process.py   whether the process of a run is still there
    catalog.py   the tables of a lake as one run after another leaves them: the table `runs`

Spark's tasks import `files` alone, which needs pyarrow; the driver also needs deltalake.
"""
