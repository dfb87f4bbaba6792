"""`requite pair status`: show which server of a pair is active."""

from __future__ import annotations

from requite.cli.options import QUIET, JsonFlag, Logging, Timeout
from requite.cli.pair.report import PairAddress, report


def status(
    url: PairAddress,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Show which server of a pair is active, and whether its peer is up.

    Ask both servers: after a network partition each knows only its own state. A
    suspended server was paused (SIGSTOP, a frozen machine) and asks its peer
    whether it may resume. A resigned server waits for its peer to take over.

    With --json one object: role, state, serves, epoch, peer_state,
    peer_is_silent, heard_s_ago, trouble. Exit code 1: the pair has failed.

      $ requite pair status tcp://127.0.0.1:5560
    """
    from requite.pair.operator import Operator
    from requite.protocols.binarystar.view import PairView
    from requite.shell.aio import run

    async def ask_status() -> PairView:
        async with Operator(url, timeout=timeout) as operator:
            return await operator.view()

    logging.start()
    return report(run(ask_status()), as_json)
