"""Checkers of MDP runs: one class per invariant, each with the evidence that it saw.

The numbers are those of ARCHITECTURE.md. I3 and I4 (storage), I12 (Binary Star) and I14 (pools) are
not here: an MDP run does not exercise them.
"""

from typing import Final

from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    NeverRepeated,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.history import Checker
from requite.sim.majordomo.checkers.dispatch import AttemptsBounded, NeverStartedInVain, OneOwner
from requite.sim.majordomo.checkers.fairness import FairToClients, FairToWorkers
from requite.sim.majordomo.checkers.intrusion import NobodyNotices
from requite.sim.majordomo.checkers.memory import MemoryBounded
from requite.sim.majordomo.checkers.presence import HeardInTime

CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    PartialsInOrder,
    OneOwner,
    AttemptsBounded,
    FairToWorkers,
    FairToClients,
    NeverRepeated,
    HonestErrors,
    NobodyNotices,
    NeverStartedInVain,
    HeardInTime,
    MemoryBounded,
)
