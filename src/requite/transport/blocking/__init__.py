"""Streams over non-blocking sockets without an event loop; their owner polls them.

A `BlockingStream` sends in the caller's thread, as much as the kernel accepts. An `Attempt` is a
connection being established; a `BlockingListener` accepts connections. All register their events
with `Poll`, and are called by `ready`. Only the resolution of a host name blocks. Over TLS the
streams are `TlsStream`s, driven by the same poll.

The owner of the poll drives them:

    attempt = Attempt(address, poll, done, failed, tls)  # done(address, stream), failed(.., error)
    listener = BlockingListener(address, poll, on_stream, tls)  # on_stream(stream)
    ...
    for fd, events in system_poll.poll(timeout_ms):      # those given to `Poll.watch`
        watched[fd].ready(events)                        # reads, writes, connects, accepts
    while todo:
        todo.popleft()()                                 # those given to `Poll.later`
    ...
    listener.close()                                     # in a forked child: `discard` them all

`done` and `on_stream` must `start` the stream before they return, as `Host.opened` does. Both are
called only from `ready` or `Poll.later`.
"""

from requite.transport.blocking.attempt import Attempt
from requite.transport.blocking.listener import BlockingListener
from requite.transport.blocking.poll import READ, WRITE, Poll, Pollable
from requite.transport.blocking.stream import BlockingStream

__all__ = ["READ", "WRITE", "Attempt", "BlockingListener", "BlockingStream", "Poll", "Pollable"]
