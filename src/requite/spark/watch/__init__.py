"""The streaming audit: an alert within seconds of a missed deadline.

case.py       what is known of one request, and when it is overdue
alerts.py     cases in Spark's state store: from a stream of events to a stream of alerts
watching.py   runs the query, for the command line
"""
