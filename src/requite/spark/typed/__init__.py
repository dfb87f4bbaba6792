"""Calls of typed services from Spark: columns of any type as messages, replies as columns.

contract.py   the method that is called, as its service describes it and as the job uses it
fitting.py    whether a type of Spark fits a JSON Schema
derived.py    the type of Spark for a JSON Schema
encoding.py   a column of Arrow to messages
decoding.py   replies to values of a type of Spark
"""
