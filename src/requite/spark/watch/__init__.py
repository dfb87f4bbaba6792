"""The streaming audit: an alert within seconds of a missed deadline.

watched_request.py  the state of one request, and when it is overdue
alerts.py           requests in Spark's state store: a stream of events to a stream of alerts
watching.py         runs the query, for the command line
"""
