"""Invalid input for a broker, and the answers that the specifications require.

`BROKEN_BYTES` are byte streams from which no message can be decoded. `BROKEN_MESSAGES` are complete
messages that are invalid, or not allowed in the state of the connection. `reason` is a substring of
the log line that the broker writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.raw_zmtp import command, greeting, message, properties, ready

Message = Sequence[bytes]


@dataclass(frozen=True)
class BrokenBytes:
    """The first bytes of a connection. `error`: the broker must answer with a ZMTP ERROR."""

    name: str
    data: bytes
    reason: str
    error: bool = False


@dataclass(frozen=True)
class BrokenMessages:
    """Messages after a valid handshake, and all answers before the broker closes the connection."""

    name: str
    messages: Sequence[Message]
    answers: Sequence[Message]
    reason: str


_HELLO: Final = greeting() + ready()
_HUGE: Final = (1 << 63).to_bytes(8, "big")
_65_MIB: Final = (65 << 20).to_bytes(8, "big")

BROKEN_BYTES: Final = [
    # --- the greeting ---
    BrokenBytes("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "those of an HTTP request"),
    BrokenBytes("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "those of TLS"),
    BrokenBytes("zeros", bytes(4096), "does not speak ZMTP 3"),
    BrokenBytes("noise", bytes(range(7, 255)) * 40, "does not speak ZMTP 3"),
    BrokenBytes("SP instead", b"\x00SP\x00\x00\x30\x00\x00", "those of SP"),
    BrokenBytes("bad signature", b"\xff" + bytes(8) + b"\x7e", "signature"),
    BrokenBytes("ZMTP 1.0", b"\xff" + bytes(8) + b"\x7f\x00", "revision 0"),
    BrokenBytes("ZMTP 2.0", b"\xff" + bytes(8) + b"\x7f\x01\x05", "revision 1"),
    BrokenBytes("CURVE", greeting(b"CURVE"), "the peer uses keys (ZMTP CURVE)"),
    BrokenBytes("GSSAPI", greeting(b"GSSAPI"), "uses the ZMTP security mechanism GSSAPI"),
    BrokenBytes("no mechanism", greeting(b""), "security mechanism (unnamed)"),
    # --- the handshake ---
    BrokenBytes(
        "message before READY", greeting() + message(b"MDPC02"), "before the handshake", True
    ),
    BrokenBytes(
        "another command first", greeting() + command(b"HELLO", b"\1a\1b"), "requires", True
    ),
    BrokenBytes("ERROR", greeting() + command(b"ERROR", b"\3bad"), "the peer refused"),
    BrokenBytes(
        "command without a name",
        greeting() + b"\x04\x00",
        "a command with a truncated or empty name",
        True,
    ),
    BrokenBytes("reserved flags", greeting() + b"\xf4\x01\x00", "flags 0xf4", True),
    BrokenBytes("huge READY", greeting() + b"\x06" + _HUGE, "a command of", True),
    BrokenBytes(
        "READY of 5 kB", greeting() + command(b"READY", bytes(5000)), "a command of 5006", True
    ),
    BrokenBytes(
        "property without a name", greeting() + command(b"READY", bytes(9)), "metadata", True
    ),
    BrokenBytes(
        "property that is cut",
        greeting() + command(b"READY", b"\x08Identity\xff\xff\xff\xff"),
        "extends beyond its command",
        True,
    ),
    BrokenBytes("no socket type", greeting() + command(b"READY"), "of type ''", True),
    BrokenBytes("a SUB socket", greeting() + ready(b"SUB"), "of type 'SUB'", True),
    BrokenBytes("a REP socket", greeting() + ready(b"REP"), "of type 'REP'", True),
    BrokenBytes(
        "a reserved identity", greeting() + ready(identity=b"\0me"), "invalid identity", True
    ),
    BrokenBytes(
        "an identity of 256 bytes",
        greeting() + command(b"READY", properties(Socket_Type=b"DEALER", Identity=bytes(256))),
        "invalid identity",
        True,
    ),
    # --- the traffic ---
    BrokenBytes("noise after the handshake", _HELLO + bytes([0x99] * 1000), "flags 0x99"),
    BrokenBytes("command with MORE", _HELLO + b"\x05\x05\x04PING", "flags 0x05"),
    BrokenBytes("frame of 2^63 bytes", _HELLO + b"\x02" + _HUGE, "bytes"),
    BrokenBytes("frame of 65 MiB", _HELLO + b"\x02" + _65_MIB, "bytes"),
    BrokenBytes(
        "second frame too large",
        _HELLO + b"\x01\x06MDPC02" + b"\x02" + _65_MIB,
        "bytes",
    ),
    BrokenBytes("1100 frames", _HELLO + b"\x01\x00" * 1099 + b"\x00\x00", "frames"),
    BrokenBytes("endless frames", _HELLO + b"\x01\x00" * 100_000, "frames"),
    BrokenBytes("bad PING", _HELLO + command(b"PING", b"\x00"), "PING"),
    BrokenBytes("PING with a long context", _HELLO + command(b"PING", bytes(19)), "PING"),
    BrokenBytes("ERROR among messages", _HELLO + command(b"ERROR", b"\3bad"), "sent an error: bad"),
    BrokenBytes("large command", _HELLO + command(b"X", bytes(5000)), "a command of 5002"),
]

# The broker's DISCONNECT in each version of MDP.
_BYE_01: Final = (b"", b"MDPW01", b"\x05")
_BYE_02: Final = (b"MDPW02", b"\x06")
_BYE_03: Final = (b"MDPW03\x06",)
_BEAT_03: Final = (b"MDPW03\x05\x00\x00\x03\xe8",)

_READY_01: Final = (b"", b"MDPW01", b"\x01", b"bad")
_READY_02: Final = (b"MDPW02", b"\x01", b"bad")
_READY_03: Final = (b"MDPW03\x01\x00\x01\x00\x00\x03\xe8" + bytes(4 + 8) + b"bad",)

_REQUEST_02: Final = (b"MDPC02", b"\x01", b"mmi.service", b"bad")
_ANSWER_02: Final = (b"MDPC02", b"\x03", b"mmi.service", b"404")


def _request_03(
    request_id: int, service: bytes, key: bytes = b"", size: int | None = None
) -> bytes:
    size = len(service) if size is None else size
    fixed = request_id.to_bytes(8, "big") + bytes(5) + bytes([size]) + bytes(16)
    return b"MDPC03\x01" + fixed + service + key


_NOBODY: Final = "does not match any dialect of MDP"

BROKEN_MESSAGES: Final = [
    # --- not a message of any MDP version ---
    BrokenMessages("not MDP", [(b"hello",)], [], _NOBODY),
    BrokenMessages("one empty frame", [(b"",)], [], _NOBODY),
    BrokenMessages("two empty frames", [(b"", b"")], [], _NOBODY),
    BrokenMessages("MDP 0.4", [(b"MDPC04", b"\x01", b"echo", b"x")], [], "announces MDPC04"),
    BrokenMessages(
        "0.1 without its empty frame", [(b"MDPC01", b"echo", b"x")], [], "has no empty frame"
    ),
    BrokenMessages(
        "0.2 with an empty frame", [(b"", *_REQUEST_02)], [], "has an empty frame before it"
    ),
    BrokenMessages("majortomo", [(b"", b"MDPC02", b"\x02", b"a", b"x")], [], "majortomo"),
    BrokenMessages(
        "zproto", [(b"\xaa\xa4\x01\x06MDPC02\x01\x04echo", b"hello")], [], "encoded with zproto"
    ),
    BrokenMessages("lower case", [(b"mdpc02", b"\x01", b"echo", b"x")], [], _NOBODY),
    # --- clients: commands that a client must not send ---
    BrokenMessages("0.2 command 0", [(b"MDPC02", b"\x00", b"echo", b"x")], [], "no command"),
    BrokenMessages("0.2 PARTIAL", [(b"MDPC02", b"\x02", b"echo", b"x")], [], "no command"),
    BrokenMessages("0.2 FINAL of a client", [(b"MDPC02", b"\x03", b"a", b"x")], [], "no command"),
    BrokenMessages("0.2 command 255", [(b"MDPC02", b"\xff", b"echo", b"x")], [], "no command"),
    BrokenMessages(
        "0.2 two-byte command", [(b"MDPC02", b"\x01\x01", b"a", b"x")], [], "no command"
    ),
    BrokenMessages("0.3 FINAL of a client", [(b"MDPC03\x03" + bytes(10), b"x")], [], "no command"),
    BrokenMessages("0.3 command 99", [(b"MDPC03\x63",)], [], "no command"),
    BrokenMessages("0.3 no command", [(b"MDPC03",)], [], "command byte"),
    # --- clients: bodies and names ---
    BrokenMessages("0.1 no body", [(b"", b"MDPC01", b"echo")], [], "a body"),
    BrokenMessages("0.1 no service", [(b"", b"MDPC01")], [], "a service name"),
    BrokenMessages("0.2 no body", [(b"MDPC02", b"\x01", b"echo")], [], "a body"),
    BrokenMessages("0.2 no service", [(b"MDPC02", b"\x01")], [], "a service name"),
    BrokenMessages("0.2 nothing else", [(b"MDPC02",)], [], "no command"),
    BrokenMessages("0.3 no body", [(_request_03(1, b"echo"),)], [], "body"),
    BrokenMessages("0.3 header cut", [(_request_03(1, b"echo")[:15], b"x")], [], "fixed bytes"),
    BrokenMessages("0.3 name cut", [(_request_03(1, b"ec", size=9), b"x")], [], "service name"),
    BrokenMessages("0.3 key too long", [(_request_03(1, b"a", bytes(256)), b"x")], [], "key"),
    BrokenMessages("0.3 CANCEL with a body", [(b"MDPC03\x04" + bytes(8), b"x")], [], "body"),
    BrokenMessages("0.3 CANCEL too long", [(b"MDPC03\x04" + bytes(9),)], [], "CANCEL"),
    BrokenMessages("empty name", [(b"MDPC02", b"\x01", b"", b"x")], [], "1 to 255"),
    BrokenMessages("long name", [(b"MDPC02", b"\x01", b"n" * 256, b"x")], [], "1 to 255"),
    BrokenMessages("name with a newline", [(b"MDPC02", b"\x01", b"a\nb", b"x")], [], "control"),
    BrokenMessages("name not UTF-8", [(b"", b"MDPC01", b"\xff\xfe", b"x")], [], "UTF-8"),
    BrokenMessages("0.3 empty name", [(_request_03(1, b""), b"x")], [], "1 to 255"),
    BrokenMessages(
        "0.3 id still pending",
        [(_request_03(7, b"nobody"), b"x"), (_request_03(7, b"nobody"), b"x")],
        [],
        "request id 7 belongs to a request that is still pending",
    ),
    # --- clients: a change of version or role on one connection ---
    BrokenMessages(
        "0.2 then 0.3", [_REQUEST_02, (_request_03(1, b"a"), b"x")], [_ANSWER_02], "0.2"
    ),
    BrokenMessages(
        "0.2 then 0.1", [_REQUEST_02, (b"", b"MDPC01", b"a", b"x")], [_ANSWER_02], "0.2"
    ),
    BrokenMessages("client then worker", [_REQUEST_02, _READY_02], [_ANSWER_02], "no command"),
    BrokenMessages("client then noise", [_REQUEST_02, (b"\0\1\2",)], [_ANSWER_02], "no command"),
    # --- workers: commands before READY and second READYs, in each version ---
    BrokenMessages("0.1 HEARTBEAT first", [(b"", b"MDPW01", b"\x04")], [_BYE_01], "before READY"),
    BrokenMessages("0.2 HEARTBEAT first", [(b"MDPW02", b"\x05")], [_BYE_02], "before READY"),
    BrokenMessages("0.3 HEARTBEAT first", [_BEAT_03], [_BYE_03], "before READY"),
    BrokenMessages(
        "0.1 REPLY of a stranger", [(b"", b"MDPW01", b"\x03", b"c", b"", b"x")], [_BYE_01], "before"
    ),
    BrokenMessages(
        "0.2 FINAL of a stranger", [(b"MDPW02", b"\x04", b"c", b"", b"x")], [_BYE_02], "before"
    ),
    BrokenMessages(
        "0.2 PARTIAL of a stranger", [(b"MDPW02", b"\x03", b"c", b"", b"x")], [_BYE_02], "before"
    ),
    BrokenMessages(
        "0.3 FINAL of a stranger", [(b"MDPW03\x04" + bytes(9), b"x")], [_BYE_03], "before READY"
    ),
    BrokenMessages("0.3 PROGRESS first", [(b"MDPW03\x07" + bytes(12),)], [_BYE_03], "before"),
    BrokenMessages("0.3 DRAIN first", [(b"MDPW03\x08",)], [_BYE_03], "before READY"),
    BrokenMessages("0.1 two READYs", [_READY_01, _READY_01], [_BYE_01], "READY twice"),
    BrokenMessages("0.2 two READYs", [_READY_02, _READY_02], [_BYE_02], "READY twice"),
    BrokenMessages("0.3 two READYs", [_READY_03, _READY_03], [_BEAT_03, _BYE_03], "READY twice"),
    BrokenMessages(
        "0.2 READY for another service",
        [_READY_02, (b"MDPW02", b"\x01", b"bad2")],
        [_BYE_02],
        "READY twice",
    ),
    # --- workers: service names that are not allowed ---
    BrokenMessages("0.1 READY for mmi.x", [(b"", b"MDPW01", b"\x01", b"mmi.x")], [_BYE_01], "mmi."),
    BrokenMessages("0.2 READY for mmi.x", [(b"MDPW02", b"\x01", b"mmi.x")], [_BYE_02], "mmi."),
    BrokenMessages(
        "0.3 READY for mmi.service",
        [(b"MDPW03\x01\x00\x01" + bytes(16) + b"mmi.service",)],
        [_BYE_03],
        "mmi.",
    ),
    BrokenMessages("READY without a name", [(b"MDPW02", b"\x01")], [_BYE_02], "READY has"),
    BrokenMessages("READY with an empty name", [(b"MDPW02", b"\x01", b"")], [_BYE_02], "1 to 255"),
    BrokenMessages(
        "READY with two names", [(b"MDPW02", b"\x01", b"bad", b"bad")], [_BYE_02], "READY has"
    ),
    BrokenMessages(
        "READY with a bad name", [(b"MDPW02", b"\x01", b"a\x00b")], [_BYE_02], "control"
    ),
    BrokenMessages(
        "0.3 READY with no place",
        [(b"MDPW03\x01\x00\x00" + bytes(16) + b"bad",)],
        [_BYE_03],
        "not 0",
    ),
    # --- workers: replies without a request, and malformed replies ---
    BrokenMessages(
        "0.1 REPLY unasked",
        [_READY_01, (b"", b"MDPW01", b"\x03", b"c", b"", b"x")],
        [_BYE_01],
        "without a request",
    ),
    BrokenMessages(
        "0.2 FINAL unasked",
        [_READY_02, (b"MDPW02", b"\x04", b"c", b"", b"x")],
        [_BYE_02],
        "without a request",
    ),
    BrokenMessages(
        "0.2 FINAL without an empty frame",
        [_READY_02, (b"MDPW02", b"\x04", b"c", b"x", b"y")],
        [_BYE_02],
        "not empty",
    ),
    BrokenMessages(
        "0.2 FINAL without a body",
        [_READY_02, (b"MDPW02", b"\x04", b"c", b"")],
        [_BYE_02],
        "a body",
    ),
    BrokenMessages(
        "0.3 FINAL with a broker's status",
        [_READY_03, (b"MDPW03\x04" + bytes(8) + b"\x05", b"x")],
        [_BEAT_03, _BYE_03],
        "status 5",
    ),
    # --- workers: unknown commands, and a change of version or role ---
    BrokenMessages("0.1 command 6", [(b"", b"MDPW01", b"\x06")], [_BYE_01], "no command"),
    BrokenMessages("0.2 command 7", [(b"MDPW02", b"\x07")], [_BYE_02], "no command"),
    BrokenMessages("0.2 REQUEST of a worker", [(b"MDPW02", b"\x02")], [_BYE_02], "no command"),
    BrokenMessages("0.3 command 9", [(b"MDPW03\x09" + bytes(8),)], [_BYE_03], "no command"),
    BrokenMessages("0.2 HEARTBEAT with more", [(b"MDPW02", b"\x05", b"x")], [_BYE_02], "Heartbeat"),
    BrokenMessages("0.2 then 0.1 worker", [_READY_02, _READY_01], [_BYE_02], "0.2"),
    BrokenMessages("0.2 then 0.3 worker", [_READY_02, _BEAT_03], [_BYE_02], "0.2"),
    BrokenMessages(
        "0.3 then 0.2 worker", [_READY_03, _READY_02], [_BEAT_03, _BYE_03], "must start"
    ),
    BrokenMessages("worker then client", [_READY_02, _REQUEST_02], [_BYE_02], "no command"),
    BrokenMessages("worker then noise", [_READY_01, (b"\xff" * 300,)], [_BYE_01], "no command"),
]
