"""`format("requite")` as a sink: written rows become requests.

options.py   checks the options, and makes the plan
writer.py    sends requests in tasks, and commits a write or a micro-batch
replies.py   the folder for rows and replies
"""
