"""The contenders: how each is started, and what is missing if it is not installed."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from bench.cells import Kind

BASELINE: dict[Kind, str] = {
    "broker": "pyzmq poller",
    "journal": "0.3, no journal",
    "tls": "0.3, no TLS",
    "curve": "0.3, clear text",
    "access": "0.3, no access file",
    "end-to-end": "nats-py",
}
_LISTENING = r"istening (?:on t(?:cp|ls)|for client connections on ).*:(\d+)"
_BIND = ("--bind", "tcp://127.0.0.1:0")

Lack = Callable[[], str | None]
"""Returns None, or what is missing and how to install it."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One column of a table.

    `broker` is its command line, and `listening` the pattern of the output line with its port.
    `dialect` is the dialect of the raw generator (kind "broker"), `peer` the module with its client
    and worker (kinds "end-to-end" and "curve"), and `query` returns what their URLs end in.
    """

    name: str
    kind: Kind
    broker: Callable[[], list[str]]
    lacks: tuple[Lack, ...]
    dialect: str = ""
    peer: str = ""
    listening: str = _LISTENING
    query: Callable[[], str] = str

    def lack(self) -> str | None:
        """Return the first thing that is missing, if any."""
        return next((text for lack in self.lacks if (text := lack())), None)


def nats_server() -> str | None:
    """Return the path of the server; Debian's package installs it in the folder of daemons."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


def _module(name: str, package: str) -> Lack:
    def lack() -> str | None:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:  # its parent package is missing
            found = None
        return None if found else f"no module {name}: {package}"

    return lack


def _executable() -> Path:
    return Path(sys.executable).with_name("requite")


def _no_requite() -> str | None:
    return None if _executable().exists() else "no command requite: run `scripts/setup bench`"


def _no_nats_server() -> str | None:
    return None if nats_server() else "no nats-server: install Debian's package `nats-server`"


def _requite_broker() -> list[str]:
    return [str(_executable()), "broker", *_BIND]


def _journalling_broker() -> list[str]:
    folder = tempfile.mkdtemp(prefix="requite-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [*_requite_broker(), "--journal", folder]


def _secure_broker() -> list[str]:
    from requite.cli.keys.certificates import new_authority

    folder = Path(tempfile.mkdtemp(prefix="requite-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    issued = new_authority("bench", days=1)
    file = folder / "broker.pem"
    file.write_bytes(issued.key + issued.certificate)
    return [str(_executable()), "broker", "--bind", f"tls://127.0.0.1:0?certificate={file}"]


@cache
def _curve_keys() -> tuple[Path, str]:
    """Make the keys of a broker and of its peers; return their folder and the broker's public
    key."""
    from requite.shell.curve import create_key_file

    folder = Path(tempfile.mkdtemp(prefix="requite-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "clients").write_text(create_key_file(folder / "peer"))
    return folder, create_key_file(folder / "broker")


def _curve_broker() -> list[str]:
    folder, _ = _curve_keys()
    files = ("--curve-key-file", f"{folder}/broker", "--curve-clients", f"{folder}/clients")
    return [*_requite_broker(), *files]


def _curve_query() -> str:
    folder, key = _curve_keys()
    return f"?curve={quote(key, safe='')}&curve_key_file={folder}/peer"


_QUOTA = """
[quota.default]
bytes = "64M"
connections = 50
requests_per_s = 10_000_000
services = 20
groups = 100
"""


def _guarded_broker(quota: str = "") -> list[str]:
    folder = tempfile.mkdtemp(prefix="requite-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder) / "access.toml"
    file.touch(0o600)
    # The load has no credentials: it measures what follows the handshake.
    file.write_text(f'[user.bench]\nanonymous = true\ncall = ["e*"]\nserve = ["e*"]\n{quota}')
    return [*_requite_broker(), "--access", str(file)]


def _nats_broker() -> list[str]:
    return [nats_server() or "nats-server", "--addr", "127.0.0.1", "--port", "-1"]


def _python_broker(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"bench.brokers.{name}", *_BIND]


_FROM_BENCH = "run `scripts/setup bench`"
_zmq = _module("zmq", _FROM_BENCH)
_majortomo = _module("majortomo", _FROM_BENCH)
_nats_py = _module("nats", _FROM_BENCH)
_certificates = _module("cryptography", _FROM_BENCH)
_nacl = _module("nacl", _FROM_BENCH)
_requite_cli = _module("requite.cli", "this tree has no command line yet")
_requite_worker = _module("requite.worker", "this tree has no worker yet")
_requite = (_no_requite, _requite_cli)

CONTENDERS = [
    Contender("requite 0.2", "broker", _requite_broker, _requite, "mdp-0.2"),
    Contender("requite 0.3", "broker", _requite_broker, _requite, "mdp-0.3"),
    Contender("pyzmq poller", "broker", _python_broker("pyzmq_poller"), (_zmq,), "mdp-0.2"),
    Contender("zmq.asyncio", "broker", _python_broker("zmq_asyncio"), (_zmq,), "mdp-0.2"),
    Contender(
        "majortomo", "broker", _python_broker("majortomo_broker"), (_majortomo,), "majortomo"
    ),
    Contender("nats-server", "broker", _nats_broker, (_no_nats_server,), "nats"),
    Contender("0.3, no journal", "journal", _requite_broker, _requite, "mdp-0.3"),
    Contender("0.3, journal", "journal", _journalling_broker, _requite, "mdp-0.3"),
    Contender("0.3, clear text", "curve", _requite_broker, _requite, peer="requite_peer"),
    Contender(
        "0.3, CURVE",
        "curve",
        _curve_broker,
        (*_requite, _nacl),
        peer="requite_peer",
        query=_curve_query,
    ),
    Contender("0.3, no TLS", "tls", _requite_broker, _requite, "mdp-0.3"),
    Contender("0.3, TLS", "tls", _secure_broker, (*_requite, _certificates), "mdp-0.3-tls"),
    Contender("0.3, no access file", "access", _requite_broker, _requite, "mdp-0.3"),
    Contender("0.3, access file", "access", _guarded_broker, _requite, "mdp-0.3"),
    Contender("0.3, with a quota", "access", lambda: _guarded_broker(_QUOTA), _requite, "mdp-0.3"),
    Contender(
        "requite", "end-to-end", _requite_broker, (*_requite, _requite_worker), peer="requite_peer"
    ),
    Contender(
        "majortomo",
        "end-to-end",
        _python_broker("majortomo_broker"),
        (_majortomo,),
        peer="majortomo_peer",
    ),
    Contender("nats-py", "end-to-end", _nats_broker, (_no_nats_server, _nats_py), peer="nats_peer"),
]
