"""Metrics of servers, as text for Prometheus, and whether they work.

catalogue.py   every metric: name, kind, labels and meaning
families.py    its values, and the text of Prometheus
selection.py   which services have values of their own, and the sum of the others
brokers.py     the metrics of brokers, their Titanic and their pair
figures.py     rates and percentiles between two readings of a broker
handled.py     what a worker did for a service
servers.py     those of workers, queues and devices, of shippers and streaming audits
process.py     those of every process
watched.py     what a monitor shows of each kind of server
reading.py     one reading for all who ask
monitor.py     `Monitor`: an HTTP server for them

Importing `families` and what builds on it requires the extra `metrics`.
"""
