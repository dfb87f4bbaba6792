"""Checkers of runs of the scalability protocols: one class per invariant, with its evidence.

The numbers are those of ARCHITECTURE.md; rules without a number there have a name.
"""

from typing import Final

from requite.sim.kernel.checkers.calls import EndsOnce, HonestErrors, LosesNothing
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.history import Checker
from requite.sim.scalability.checkers.calls import NeverRepeated, OwnReply, ResentAtOnce
from requite.sim.scalability.checkers.channels import FairChannels, OnlyTheWilling
from requite.sim.scalability.checkers.devices import HopsBounded, Unaltered
from requite.sim.scalability.checkers.queues import Bounded, FairQueues, NeverStartedInVain

SP_CHECKERS: Final[tuple[type[Checker], ...]] = (
    EndsOnce,
    OwnReply,
    Unaltered,
    FairChannels,
    FairQueues,
    OnlyTheWilling,
    Bounded,
    NeverRepeated,
    ResentAtOnce,
    HonestErrors,
    NobodyNotices,
    NeverStartedInVain,
    HopsBounded,
    LosesNothing,
)
