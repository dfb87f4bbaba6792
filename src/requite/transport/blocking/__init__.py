"""Streams over non-blocking sockets without an event loop, for whoever polls them itself.

A `BlockingStream` sends at once, in the caller's thread, what the kernel takes. An `Attempt` is a
connection on its way; a `BlockingListener` is where connections arrive. All tell through `Poll`
what they wait for, and are told through `ready`. Nothing here blocks, but for the resolution of a
host name. Over TLS the streams are `TlsStream`s, driven by the same poll.

Whoever owns the poll drives them so:

    attempt = Attempt(address, poll, done, failed, tls)  # done(address, stream), failed(.., error)
    listener = BlockingListener(address, poll, on_stream, tls)  # on_stream(stream)
    ...
    for fd, events in system_poll.poll(timeout_ms):      # of what `Poll.watch` was told
        watched[fd].ready(events)                        # reads, writes, connects, accepts
    while todo:
        todo.popleft()()                                 # what `Poll.later` was told
    ...
    listener.close()                                     # but in a fork: `discard` all watched

`done` and `on_stream` must `start` the stream before they return, as `Host.opened` does. Both are
called from `ready` or `Poll.later` only.
"""

from requite.transport.blocking.attempt import Attempt
from requite.transport.blocking.listener import BlockingListener
from requite.transport.blocking.poll import READ, WRITE, Poll, Pollable
from requite.transport.blocking.stream import BlockingStream

__all__ = ["READ", "WRITE", "Attempt", "BlockingListener", "BlockingStream", "Poll", "Pollable"]
