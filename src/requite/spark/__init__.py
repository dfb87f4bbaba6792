"""requite on Spark: the journal as a table, bulk calls from DataFrames, audit and capacity."""
