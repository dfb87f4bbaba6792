"""What Titanic keeps, as a table: `format("requite")` with `log=titanic`.

requests = spark.read.format("requite").option("log", "titanic").load("requests")
requests.groupBy("service", "state").count()

survey.py   what the log of a store says of each request
reader.py   the table, planned on the driver and read in tasks
"""
