"""HTTP servers: uvicorn in the running event loop, on the transports of all listeners.

server.py      `HttpServer`: listens, with or without TLS, and serves an ASGI application
connection.py  its connections
hosts.py       the hosts and origins that a server accepts
place.py       where a server listens, as options have it
answers.py     answers to requests that are refused before their bodies are read
"""
