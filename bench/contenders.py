"""The contenders: how each is started, and what is missing if it is not installed."""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from bench.brokers import native
from bench.builds import THIS, Build
from bench.cells import Kind

BASELINE: dict[Kind, str] = {
    "broker": "pyzmq poller",
    "native": "libzmq in C",
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
    `dialect` is the dialect of the raw generator (kind "broker"; the one in C, kind "native", has
    only 0.2), `peer` the module with its client and worker (kinds "end-to-end" and "curve"), which
    run with `python`; `query` returns what their URLs end in.
    """

    name: str
    kind: Kind
    broker: Callable[[], list[str]]
    lacks: tuple[Lack, ...]
    dialect: str = ""
    peer: str = ""
    listening: str = _LISTENING
    query: Callable[[], str] = str
    python: str = sys.executable

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


def _no_nats_server() -> str | None:
    return None if nats_server() else "no nats-server: install Debian's package `nats-server`"


def _requite_broker(build: Build = THIS) -> list[str]:
    return build.command("broker", *_BIND)


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
    return THIS.command("broker", "--bind", f"tls://127.0.0.1:0?certificate={file}")


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


def _libzmq_broker() -> list[str]:
    return [str(native.BROKER.path)]


def _python_broker(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"bench.brokers.{name}", *_BIND]


_FROM_BENCH = "run `scripts/setup bench`"
_zmq = _module("zmq", _FROM_BENCH)
_majortomo = _module("majortomo", _FROM_BENCH)
_nats_py = _module("nats", _FROM_BENCH)
_certificates = _module("cryptography", _FROM_BENCH)
_nacl = _module("nacl", _FROM_BENCH)
_OTHERS = [
    Contender("pyzmq poller", "broker", _python_broker("pyzmq_poller"), (_zmq,), "mdp-0.2"),
    Contender("zmq.asyncio", "broker", _python_broker("zmq_asyncio"), (_zmq,), "mdp-0.2"),
    Contender(
        "majortomo", "broker", _python_broker("majortomo_broker"), (_majortomo,), "majortomo"
    ),
    Contender("nats-server", "broker", _nats_broker, (_no_nats_server,), "nats"),
    Contender(
        "libzmq in C", "native", _libzmq_broker, (native.LOAD.lack, native.BROKER.lack), "mdp-0.2"
    ),
    Contender("0.3, no journal", "journal", _requite_broker, (), "mdp-0.3"),
    Contender("0.3, journal", "journal", _journalling_broker, (), "mdp-0.3"),
    Contender("0.3, clear text", "curve", _requite_broker, (), peer="requite_peer"),
    Contender(
        "0.3, CURVE",
        "curve",
        _curve_broker,
        (_nacl,),
        peer="requite_peer",
        query=_curve_query,
    ),
    Contender("0.3, no TLS", "tls", _requite_broker, (), "mdp-0.3"),
    Contender("0.3, TLS", "tls", _secure_broker, (_certificates,), "mdp-0.3-tls"),
    Contender("0.3, no access file", "access", _requite_broker, (), "mdp-0.3"),
    Contender("0.3, access file", "access", _guarded_broker, (), "mdp-0.3"),
    Contender("0.3, with a quota", "access", lambda: _guarded_broker(_QUOTA), (), "mdp-0.3"),
    Contender(
        "majortomo",
        "end-to-end",
        _python_broker("majortomo_broker"),
        (_majortomo,),
        peer="majortomo_peer",
    ),
    Contender("nats-py", "end-to-end", _nats_broker, (_no_nats_server, _nats_py), peer="nats_peer"),
]


def contenders(builds: Sequence[Build]) -> list[Contender]:
    """Return all contenders: requite in each build, and the others."""
    return [*(each for build in builds for each in _in_build(build)), *_OTHERS]


def _in_build(build: Build) -> list[Contender]:
    broker = partial(_requite_broker, build)
    return [
        Contender(build.name("requite 0.2"), "broker", broker, (), "mdp-0.2"),
        Contender(build.name("requite 0.3"), "broker", broker, (), "mdp-0.3"),
        Contender(build.name("0.2, load in C"), "native", broker, (native.LOAD.lack,), "mdp-0.2"),
        Contender(
            build.name("requite"),
            "end-to-end",
            broker,
            (),
            peer="requite_peer",
            python=build.python,
        ),
    ]


def versions() -> dict[str, str]:
    """Return the versions of the native parts of the contenders."""
    return _libzmq() | _nats_server()


def _libzmq() -> dict[str, str]:
    try:
        import zmq
    except ImportError:
        return {}
    return {"libzmq": zmq.zmq_version()}


def _nats_server() -> dict[str, str]:
    if (path := nats_server()) is None:
        return {}
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d[\w.]*", text)
    return {"nats-server": found[0]} if found else {}
