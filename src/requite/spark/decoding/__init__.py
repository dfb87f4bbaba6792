"""From blocks of the journal to Arrow batches of events, column by column; without Spark.

decoder.py   decodes a segment's blocks in order, and reports what does not decode
rows.py      the rows of a block, and the strings they refer to
expand.py    expands a row of a span to up to four events
columns.py   builds Arrow columns from numpy arrays
"""
