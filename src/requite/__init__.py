"""Send a request, surely get its reply."""

__version__ = "0.1.0"
