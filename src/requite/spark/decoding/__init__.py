"""From blocks of the journal to Arrow batches of events, column by column; without Spark.

decoder.py   a segment's blocks, one after the other; what does not decode
rows.py      the rows of a block, and the strings they refer to
expand.py    a row of a flight stands for up to four events
columns.py   Arrow columns made of numpy's
"""
