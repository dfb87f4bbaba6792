"""The scalability protocols as sockets: `Req`, `Rep` and `Device`, for use on an event loop.

`requite.Client`, `AsyncClient` and `Worker` speak SP, too, by URLs such as `sp+tcp://host:port`;
this is for those who want to dial, listen, ask and answer themselves.
"""
