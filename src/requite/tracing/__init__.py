"""Traces and metrics of calls by OpenTelemetry's API (`requite[otel]`).

A program that has set up OpenTelemetry's SDK before it makes a client, a worker, a broker or a
Titanic gets their spans, without further settings and without patches. The trace context travels
with the request over MDP 0.3, AMQP and in Titanic's log (`requite.trace_context`).

api.py    OpenTelemetry's API, if the program has an SDK behind it
calls.py  the span of each call of a client, and `rpc.client.call.duration`
stays.py  the span of each request at a broker, or in a Titanic

The spans of handlers are in `requite.worker.spans`.

A program without an SDK pays nothing. Source: OpenTelemetry, "Semantic conventions for RPC calls",
with the system `requite`.
"""
