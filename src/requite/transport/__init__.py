"""Moves bytes and knows no protocol: TCP, TLS, Unix sockets, and pairs inside one process."""
