"""`requite pair status`: which of the two serves, and whether the other one is there."""

from __future__ import annotations

from requite.cli.options import QUIET, JsonFlag, Logging, Timeout
from requite.cli.pair.asking import PairAddress, report


def status(
    url: PairAddress,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Show which server of a pair serves, and whether the other one is there.

    Ask both servers: one that is cut off from the other still thinks that it is
    right. One that is suspended has stood still and asks the other one whether
    it may go on; one that has resigned waits for the other one to take over.

    With --json one object: role, state, serves, epoch, peer_state,
    peer_is_silent, heard_s_ago, trouble. Exit code 1: the pair has failed.

      $ requite pair status tcp://127.0.0.1:5560
    """
    from requite.pair.operator import Operator
    from requite.protocols.binarystar.view import PairView
    from requite.shell.aio import run

    async def look() -> PairView:
        async with Operator(url, timeout=timeout) as operator:
            return await operator.view()

    logging.start()
    return report(run(look()), as_json)
