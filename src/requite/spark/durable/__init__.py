"""The requests that Titanic stores, as a table: `format("requite")` with `log=titanic`.

requests = spark.read.format("requite").option("log", "titanic").load("requests")
requests.groupBy("service", "state").count()

survey.py   reads the state of each request from a store's log
reader.py   the table, planned on the driver and read by tasks
"""
