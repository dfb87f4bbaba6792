"""Address and output format that the verbs of `requite pair` share."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain, printable, say, say_json
from requite.protocols.binarystar.reasons import lonely, word_for
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.view import PairView

PairAddress = Annotated[
    str,
    Parameter(
        help="The --pair-bind address of either server: `tcp://HOST:PORT`, `ipc:///PATH` or "
        "`tls://HOST:PORT?ca=FILE&certificate=FILE`."
    ),
]


def report(view: PairView, as_json: bool) -> ExitCode:
    """Print a server's view of its pair; return `FAILED` for a pair that has failed."""
    if as_json:
        say_json(record(view))
    else:
        say("\n".join(sentences(view)))
    if view.state is State.FAILED:
        complain(f"the pair has failed: {printable(view.trouble)}")
        return ExitCode.FAILED
    return ExitCode.OK


def record(view: PairView) -> dict[str, Any]:
    """Return a view as a dict for JSON."""
    return {
        "role": view.role.name.lower(),
        "state": view.state.name.lower(),
        "serves": view.serves,
        "epoch": view.epoch,
        "peer_state": None if view.peer_state is None else view.peer_state.name.lower(),
        "peer_is_silent": view.peer_is_silent,
        "heard_s_ago": view.heard_s_ago,
        "trouble": view.trouble,
    }


def sentences(view: PairView) -> list[str]:
    """Return a view as lines: one for each server, then advice, if any."""
    serves = "serves" if view.serves else "does not serve"
    own = f"{view.role.name.lower():<8} {word_for(view.state)}, {serves}, epoch {view.epoch}"
    other = f"{view.role.other.name.lower():<8} {_heard(view)}"
    is_unheard = view.trouble and view.state is not State.FAILED
    advice = lonely(view.state, view.peer_is_silent)
    heard = f"{other} ({printable(view.trouble)})" if is_unheard else other
    return [own, heard, advice] if advice else [own, heard]


def _heard(view: PairView) -> str:
    if view.peer_state is None or view.heard_s_ago is None:
        return "not heard of yet"
    silent = "SILENT: " if view.peer_is_silent else ""
    return f"{silent}was {word_for(view.peer_state)} {view.heard_s_ago:.1f} s ago"
