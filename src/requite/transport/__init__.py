"""Moves bytes and knows no protocol: TCP, Unix sockets, and pairs inside one process."""
