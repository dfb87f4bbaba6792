"""What must hold in every run: one class per invariant, each with the evidence it saw.

The numbers are those of ARCHITECTURE.md. I3 and I4 (storage), I12 (Binary Star) and I14 (pools) are
not here: nothing in a run makes them true or false.
"""

from typing import Final

from requite.sim.checkers.calls import (
    EndsOnce,
    HonestErrors,
    NeverRepeated,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.checkers.dispatch import AttemptsBounded, NeverStartedInVain, OneOwner
from requite.sim.checkers.fairness import FairToClients, FairToWorkers
from requite.sim.checkers.intrusion import NobodyNotices
from requite.sim.checkers.presence import HeardInTime
from requite.sim.history import Checker

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
)
