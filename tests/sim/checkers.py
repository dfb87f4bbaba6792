"""List the checkers of all parts of the simulator."""

from __future__ import annotations

from requite.sim.amqp.simulation import AmqpSimulation
from requite.sim.dedup.checkers import DEDUP_CHECKERS
from requite.sim.freelance.simulation import FreelanceSimulation
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.paired.checkers import PAIRED_CHECKERS
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.rights.checkers import RIGHTS_CHECKERS
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.shells.simulation import SHELL_CHECKERS

_BY_GROUP = {
    "mdp": CHECKERS,
    "dedup": DEDUP_CHECKERS,
    "sp": SP_CHECKERS,
    "flp": FreelanceSimulation.checkers,
    "pirate": PIRATE_CHECKERS,
    "pair-broker": PAIRED_CHECKERS,
    "rights": RIGHTS_CHECKERS,
    "amqp": AmqpSimulation.checkers,
    "shells": SHELL_CHECKERS,
}


def checkers() -> list[str]:
    """Return a line per checker: part of the simulator, invariant, class name.

    Titanic, pairs and pools have no checker classes; their ledgers check everything.
    """
    return [
        f"{group} {checker.invariant} {checker.__name__}"
        for group, kinds in _BY_GROUP.items()
        for checker in kinds
    ]
