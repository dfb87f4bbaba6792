"""`requite pair switch`: make the passive server of a pair active."""

from __future__ import annotations

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging, Timeout
from requite.cli.output import complain, printable
from requite.cli.pair.report import PairAddress, report
from requite.errors import RemoteFailure


def switch(
    url: PairAddress,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Make the passive server of a pair active.

    URL may be either server. The active server stops serving; its peer starts
    when it receives the new state. A server that is not active and whose
    peer is silent takes over, even a backup that has never heard its primary.

    Exit code 1: the server refuses because no server would be active, or because
    the states are not settled yet; or the switch was undone at once. The output is
    that of `requite pair status`.

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
