"""`format("requite")` as a sink: what is written becomes requests.

options.py   checks the options and makes the plan of them
writer.py    what tasks do, and what a write or a micro-batch commits
replies.py   the folder to which rows and replies go
"""
