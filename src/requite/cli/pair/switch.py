"""`requite pair switch`: let the other server of a pair be active."""

from __future__ import annotations

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging, Timeout
from requite.cli.output import complain, printable
from requite.cli.pair.asking import PairAddress, report
from requite.errors import RemoteFailure


def switch(
    url: PairAddress,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Let the other server of a pair be active: the one that is passive now.

    Either server may be asked. The active one stops to serve, and the other one
    begins as soon as it hears of it. A server whose peer is silent takes over,
    if it is not active: also a backup that has never heard its primary.

    Exit code 1: the server refuses, because nobody would serve then, or because
    nothing is settled yet; or the switch was undone at once. It prints what
    `requite pair status` does.

      $ requite pair switch tcp://127.0.0.1:5560
    """
    from requite.pair.operator import Operator
    from requite.protocols.binarystar.view import PairView
    from requite.shell.aio import run

    async def change() -> PairView:
        async with Operator(url, timeout=timeout) as operator:
            return await operator.switch()

    logging.start()
    try:
        return report(run(change()), as_json)
    except RemoteFailure as refusal:
        complain(f"no switch: {printable(str(refusal))}")
        return ExitCode.FAILED
