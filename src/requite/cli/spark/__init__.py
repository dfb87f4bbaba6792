"""`requite spark`: one file per verb; which verbs there are is told by `requite.cli.verbs`.

    run.py     run(…): the pipeline over journals
    sql.py     sql(…): questions to the tables
    watch.py   watch(…): alerts while journals are written
    sweep.py   sweep(…): seeds of the simulator, in parallel
    options.py where Spark runs, and how: the options of all of them

Each is loaded when it is used, and loads Spark only then.
"""
