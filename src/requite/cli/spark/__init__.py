"""`requite spark`: one file per verb. `requite.cli.verbs` lists the verbs.

    run.py      run(…): run the pipeline over journals
    sql.py      sql(…): query the tables
    watch.py    watch(…): print alerts while journals are written
    sweep.py    sweep(…): run seeds of the simulator in parallel
    options.py  options of all verbs: the master, the settings and the memory of Spark

Each module is imported when its verb runs, and only then imports Spark.
"""
