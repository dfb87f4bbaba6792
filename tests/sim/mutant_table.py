"""The table of broken engines, and the invariant whose checker must find each.

A row has the invariant, a scenario in which the broken rule matters, and the parts of the
simulation that it replaces. Rows of Titanic give the engine's name; others take it from the first
replaced part. The classes are in `*_mutants.py`, the seeds in
`broken_engines.txt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.sim import amqp_mutants as amqp
from tests.sim import dedup_mutants as dedup
from tests.sim import flp_mutants as flp
from tests.sim import mdp_broker_mutants as brokers
from tests.sim import mdp_peer_mutants as peers
from tests.sim import pair_mutants as pair
from tests.sim import paired_mutants as paired
from tests.sim import pirate_mutants as pirate
from tests.sim import pool_mutants as pool
from tests.sim import rights_mutants as rights
from tests.sim import shell_mutants as shells
from tests.sim import sp_mutants as sp
from tests.sim import titanic_mutants as titanic
from tests.sim.finding import Broken

from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.sim import Options
from requite.sim.amqp.parties import AmqpParts
from requite.sim.freelance.parties import FlpParts
from requite.sim.kernel.faults import FaultKind
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.pair.server import PairParts
from requite.sim.pirate.parties import PirateParts
from requite.sim.pool.knobs import Task
from requite.sim.pool.stage import PoolSimParts
from requite.sim.scalability.parties import SpParts
from requite.sim.shells.knobs import Transport
from requite.sim.shells.stage import ShellParts
from requite.sim.titanic.process import TitanicParts

# --- knobs --------------------------------------------------------------------------------------
REPEATED: Final[dict[str, Any]] = {"repeat_p": 0.5}

# Slow syncs and frequent power cuts, so that a cut soon falls between a write and its sync.
SLOW_DISK: Final[dict[str, Any]] = {
    "disk_s": 0.3,
    "faults_per_s": 3.0,
    "service_s": 0.005,
    "timeout_s": 15.0,
    "repeat_p": 0.8,
}

# A cache for engines that do not store replies in time: none could be read without it. Slow syncs,
# so that a kill falls between an answer and its record. A small disk, and many failed attempts.
_TITANIC_KNOBS: Final[dict[str, dict[str, Any]]] = {
    "keeps-no-reply": {"cache_bytes_max": 1 << 20},
    "closes-in-memory": {"disk_s": 0.3},
    "reports-early": {"cache_bytes_max": 1 << 20, "disk_s": 0.3},
    "knows-no-bound": {"disk_segments_max": 6, "faults_per_s": 2.0, "weights": (5, 3, 3, 3, 3)},
}

# Handlers that mostly hang.
MUTE: Final[dict[str, Any]] = {"weights": (1, 6), "worker_expired_max": 1}

# Variants of pools: poison requests, expiring requests, quick managers, slow handlers.
POISON: Final[dict[str, Any]] = {"tasks": (Task.SERVE, Task.POISON), "weights": (3, 1)}
EXPIRING: Final[dict[str, Any]] = {"ttl_p": 0.7, "faults_per_s": 0.5}
QUICK: Final[dict[str, Any]] = {"api_s": 0.01, "driver_s": 0.005}
HELD: Final[dict[str, Any]] = {"service_s": 0.4, "prefetch": 3, "api_s": 0.01}

# Workers that take as long to start as an unused group lives.
SLOW_STARTS: Final[dict[str, Any]] = {
    "start_s": 1.0,
    "unbind_delay_s": 1.0,
    "stop_delay_s": 0.3,
    "latency_s": 0.05,
    "api_s": 0.01,
    "driver_s": 0.005,
}

# A small load with short limits, so that a run ends even if messages circulate forever.
SLOW: Final[dict[str, Any]] = {
    "latency_s": 0.05,
    "calls": 20,
    "message_ttl_s": 15.0,
    "delivery_limit": 1,
    "ack_timeout_s": 3.0,
}

# Workers killed with a request in hand, while RabbitMQ's statistics lag behind.
COUNTED_LATE: Final[dict[str, Any]] = {
    "tasks": (Task.SERVE, Task.STALL),
    "weights": (1, 2),
    "sample_s": 5.0,
    "notice_s": 3.0,
    "ack_timeout_s": 8.0,
    "delivery_limit": 2,
    "prefetch": 1,
    "faults": (),
    "keys": 6,
    "calls": 30,
    "faulty_s": 60.0,
}

# Two managers that are drained or cut off from each other.
LEAVING: Final[dict[str, Any]] = {
    "managers": 2,
    "faults": (FaultKind.DRAIN_MANAGER, FaultKind.CUT_MANAGER),
    "faults_per_s": 1.5,
    "faulty_s": 30.0,
    "driver_s": 0.5,
    "stop_delay_s": 0.5,
    "latency_s": 0.0005,
    "api_s": 0.01,
    "notice_s": 0.0,
}

# Only a broker reports failures and accepts calls without a deadline.
_BEHIND_A_BROKER: Final[dict[str, Any]] = {"transport": Transport.BROKER}

# --- rows ---------------------------------------------------------------------------------------
_MODELS: Final[dict[Model, type]] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}


def _name(parts: Mapping[str, Any]) -> str:
    """Return the name of the first replaced part."""
    name: str = next(iter(parts.values())).__name__
    return name


def _mdp(invariant: str, scenario: str, knobs: Mapping[str, Any] = {}, **parts: Any) -> Broken:
    options = Options(parts=(MajordomoParts(**parts),), knobs=dict(knobs))
    return Broken(invariant, scenario, _name(parts), options)


def _dedup(invariant: str, scenario: str, engine: type, knobs: Mapping[str, Any] = {}) -> Broken:
    options = Options(parts=(MajordomoParts(dedup=engine),), knobs={**REPEATED, **knobs})
    return Broken(invariant, scenario, engine.__name__, options)


def _sp(invariant: str, scenario: str, **parts: Any) -> Broken:
    return Broken(invariant, scenario, _name(parts), Options(parts=(SpParts(**parts),)))


def _flp(invariant: str, scenario: str, engine: Any) -> Broken:
    clients = {m: engine if issubclass(engine, kind) else kind for m, kind in _MODELS.items()}
    parts = FlpParts(clients=clients) if engine in clients.values() else FlpParts(server=engine)
    return Broken(invariant, scenario, engine.__name__, Options(parts=(parts,)))


def _pirate(invariant: str, scenario: str, **parts: Any) -> Broken:
    return Broken(invariant, scenario, _name(parts), Options(parts=(PirateParts(**parts),)))


def _shells(invariant: str, scenario: str, knobs: Mapping[str, Any] = {}, **parts: Any) -> Broken:
    options = Options(parts=(ShellParts(**parts),), knobs=dict(knobs))
    return Broken(invariant, scenario, _name(parts), options)


def _titanic(invariant: str, scenario: str, name: str, parts: TitanicParts) -> Broken:
    options = Options(parts=(parts,), knobs=_TITANIC_KNOBS.get(name, {}))
    return Broken(invariant, scenario, name, options)


def _pair(invariant: str, scenario: str, engine: type[BinaryStarPeer]) -> Broken:
    options = Options(parts=(PairParts(engine=engine),))
    return Broken(invariant, scenario, engine.__name__, options)


def _pool(invariant: str, scenario: str, knobs: Mapping[str, Any] = {}, **parts: Any) -> Broken:
    replaced = PoolSimParts(**parts) if "connect" in parts else pool.engine(**parts)
    options = Options(parts=(replaced,), knobs=dict(knobs))
    return Broken(invariant, scenario, _name(parts), options)


def _amqp(invariant: str, scenario: str, engine: Any) -> Broken:
    is_caller = issubclass(engine, AmqpCaller)
    parts = AmqpParts(caller=engine) if is_caller else AmqpParts(responder=engine)
    return Broken(invariant, scenario, engine.__name__, Options(parts=(parts,)))


BROKEN: Final[tuple[Broken, ...]] = (
    # --- MDP
    _mdp("I1", "calm", client=peers.AnswersTwice),
    _mdp("I1", "calm", client=peers.ForgetsToExpire),
    _mdp("I1", "crash-broker", client=peers.LosesWhatWasSent),
    _mdp("I2", "overload", client=peers.TakesLateReplies),
    _mdp("I2", "old-dialects", client=peers.keeps_lanes_open),
    _mdp("I2", "overload", broker=brokers.MutatesBodies),
    _mdp("I5", "streams", client=peers.StreamsAnew),
    _mdp("I5", "streams", broker=brokers.RepeatsAnIndex),
    _mdp("I6", "calm", broker=brokers.RedeliversFromTheLiving),
    _mdp("I6", "crash-workers", broker=brokers.IgnoresProgress),
    _mdp("I6", "calm", broker=brokers.HandsOutTwice),
    _mdp("I6", "crash-workers", broker=brokers.HearsFormerOwners),
    _mdp("I6", "calm", broker=brokers.DropsTheHasty),
    _mdp("I7", "crash-workers", broker=brokers.NeverPoisoned),
    _mdp("I7", "crash-workers", broker=brokers.PoisonedAtOnce),
    _mdp("I8", "fair", broker=brokers.UnfairToWorkers),
    _mdp("I8", "overload", broker=brokers.UnfairToClients),
    _mdp("I9", "calm", broker=brokers.KeepsServices),
    _mdp("I9", "calm", broker=brokers.RemembersEverybody),
    _mdp("I9", "calm", broker=brokers.SettlesHalf),
    _mdp("I9", "calm", client=peers.RemembersTokens),
    _mdp("I10", "calm", client=peers.KeepsSlots),
    _mdp("I10", "calm", worker=peers.KeepsJobs),
    _mdp("I10", "crash-broker", worker=peers.NeverComesBack),
    _mdp("I11", "crash-broker", client=peers.SendsAgainWhatMayHaveRun),
    _mdp("I11", "crash-broker", client=peers.TriesForEver),
    _mdp("I13", "garbage", broker=brokers.DiesOfGarbage),
    _mdp("I13", "garbage", broker=brokers.PunishesTheInnocent),
    _mdp("I13", "overload", client=peers.LeavesTooSoon),
    _mdp("I15", "standstill", broker=brokers.NeverExpires),
    _mdp("I15", "overload", broker=brokers.DisobeysCancel),
    _mdp("I15", "overload", broker=brokers.TellsNoWorker),
    _mdp("I15", "standstill", client=peers.SendsWhatIsTooLate),
    _mdp("I15", "crash-clients", broker=brokers.WorksForThoseWhoLeft),
    *(
        _mdp("memory", "limits", MUTE if limit == "worker_expired_max" else {}, broker=broker)
        for limit, broker in brokers.UNLIMITED.items()
    ),
    _mdp("memory", "limits", host=brokers.KeepsPartialMessages),
    # Bugs that the simulator found, re-introduced.
    _mdp("may_have_executed", "standstill", client=peers.BelievesNoService),
    _mdp("I8", "swarm", broker=brokers.LetsReturnedTakeTurns),
    _mdp("I8", "standstill", broker=brokers.LosesTurns),
    _mdp("heartbeat", "calm", broker=brokers.IsSlowToSpeak),
    _mdp("may_have_executed", "crash-broker", client=peers.SaysItHasNotRun),
    # --- services that run requests once
    _dedup("I4", "dedup-calm", dedup.ForgetsReplies),
    _dedup("I4", "dedup-calm", dedup.RunsWhatRuns),
    _dedup("I4", "dedup-power", dedup.StartsBeforeItIsNoted, SLOW_DISK | {"in_doubt": "refuse"}),
    _dedup("I4", "dedup-power", dedup.AnswersBeforeItIsStored, SLOW_DISK | {"in_doubt": "run"}),
    _dedup("I4", "dedup-kill", dedup.ForgetsWhatHadBegun, {"in_doubt": "refuse"}),
    _dedup("I2", "dedup-calm", dedup.AnswersWithTheLastReply),
    _dedup("I9", "dedup-calm", dedup.NeverExpires),
    _dedup("I9", "dedup-calm", dedup.KeepsTokens),
    # --- SP
    _sp("I1", "sp-calm", client=sp.AnswersTwice),
    _sp("I1", "sp-crash", client=sp.ForgetsToExpire),
    _sp("I2", "sp-garbage", client=sp.TakesStrayReplies),
    _sp("I2", "sp-slow-readers", device=sp.SwapsBodies),
    _sp("I2", "sp-calm", client=sp.CountsFromOne, device=sp.OneIdForAll),
    _sp("I8", "sp-fair", client=sp.SameForEver),
    _sp("I8", "sp-priorities", client=sp.WithoutWeights),
    _sp("I8", "sp-overload", worker=sp.ServesOneAfterTheOther),
    _sp("I9", "sp-crash", client=sp.RemembersTokens),
    _sp("I9", "sp-calm", device=sp.RemembersEverybody),
    _sp("I9", "sp-overload", worker=sp.ReadsOn),
    _sp("I9", "sp-slow-readers", device=sp.ReadsAndReads),
    _sp("I9", "sp-chain", client=sp.KeepsTags),
    _sp("I9", "sp-overload", client=sp.HasNoLimit),
    _sp("I9", "sp-overload", worker=sp.TakesTooMany),
    _sp("I10", "sp-overload", client=sp.HoldsOn),
    _sp("I10", "sp-overload", worker=sp.NeverReadsAgain),
    _sp("I10", "sp-restart-devices", client=sp.NeverSendsAgain),
    _sp("I10", "sp-slow-readers", device=sp.HoldsForEver),
    _sp("I10", "sp-crash", worker=sp.WorksForNobody),
    _sp("I11", "sp-no-resend", client=sp.SendsAgainWhatMayHaveRun),
    _sp("I11", "sp-crash", client=sp.TriesForEver),
    _sp("I11", "sp-partitions", client=sp.SendsAgainTooSoon),
    _sp("resend", "sp-crash", client=sp.WaitsForItsTimer),
    _sp("I13", "sp-garbage", worker=sp.DiesOfGarbage),
    _sp("I13", "sp-garbage", worker=sp.PunishesTheInnocent),
    _sp("I15", "sp-overload", worker=sp.StartsWhatWasLost),
    _sp("I15", "sp-slow-readers", client=sp.SendsWhatIsTooLate),
    _sp("pushback", "sp-slow-readers", client=sp.TakesNoNotice),
    _sp("pushback", "sp-priorities", client=sp.Backwards),
    _sp("pushback", "sp-slow-readers", device=sp.GivesUpAtOnce),
    _sp("hops", "sp-loop", device=sp.GoesRoundAndRound),
    _sp("hops", "sp-garbage", worker=sp.TakesDeepRequests),
    _sp("lossless", "sp-calm", device=sp.LosesSome),
    _sp("lossless", "sp-calm", worker=sp.SwapsRequests),
    _sp("may_have_executed", "sp-crash", client=sp.SaysItHasNotRun),
    # A bug that the simulator found, re-introduced.
    _sp("I10", "sp-endless", client=sp.SpendsItsBudgetForGood),
    # --- Freelance
    _flp("I1", "flp-agent", flp.AnswersTwice),
    _flp("I1", "flp-agent", flp.ForgetsToExpire),
    _flp("I2", "flp-agent", flp.TakesAnyReply),
    _flp("I2", "flp-failover", flp.KeepsTheLane),
    _flp("I2", "flp-shotgun", flp.TakesTheWrongAnswer),
    _flp("I5", "flp-calm", flp.JumblesPartials),
    _flp("I8", "flp-overload", flp.ServesOneAfterTheOther),
    _flp("I9", "flp-agent", flp.RemembersCalls),
    _flp("I9", "flp-overload", flp.HasNoLimit),
    _flp("I9", "flp-overload", flp.ReadsOn),
    _flp("I9", "flp-overload", flp.TakesTooMany),
    _flp("I10", "flp-agent", flp.NeverPings),
    _flp("I10", "flp-overload", flp.NeverReadsAgain),
    _flp("I10", "flp-partitions", flp.WorksForNobody),
    _flp("I11", "flp-once", flp.SendsWhatMayHaveRun),
    _flp("I11", "flp-agent", flp.TriesForEver),
    _flp("I11", "flp-standstill", flp.IsImpatient),
    _flp("I11", "flp-shotgun", flp.ShootsAgain),
    _flp("I13", "flp-garbage", flp.DiesOfGarbage),
    _flp("I13", "flp-garbage", flp.PunishesTheInnocent),
    _flp("I15", "flp-overload", flp.StartsWhatWasLost),
    _flp("may_have_executed", "flp-agent", flp.SaysItHasNotRun),
    _flp("live", "flp-standstill", flp.BelievesForEver),
    _flp("live", "flp-overload", flp.TakesNoNotice),
    _flp("faithful", "flp-agent", flp.ChangesItsMind),
    _flp("moves-on", "flp-agent", flp.WaitsForGodot),
    _flp("lanes", "flp-failover", flp.SendsOneAfterTheOther),
    _flp("volley", "flp-shotgun", flp.HitsOne),
    _flp("pong", "flp-overload", flp.SaysNothingWhenBusy),
    _flp("lossless", "flp-calm", flp.LosesSome),
    # Bugs that the simulator found, re-introduced.
    _flp("I15", "flp-late", flp.AsksTooLate),
    # --- Pirates
    _pirate("I1", "pirate-calm", client=pirate.AnswersTwice),
    _pirate("I1", "pirate-lazy", client=pirate.ForgetsToExpire),
    _pirate("I1", "pirate-partitions", client=pirate.LosesWhatWasSent),
    _pirate("I2", "pirate-overload", client=pirate.KeepsItsSocket),
    _pirate("I2", "pirate-calm", queue=pirate.SendsToTheFirst),
    _pirate("I2", "pirate-lazy", server=pirate.SwapsReplies),
    _pirate("lock-step", "pirate-overload", client=pirate.KeepsItsSocket),
    _pirate("I6", "pirate-simple", queue=pirate.Redelivers),
    _pirate("I6", "pirate-paranoid", queue=pirate.HandsOutOnTop),
    _pirate("I6", "pirate-garbage", queue=pirate.TakesAnyWord),
    _pirate("I8", "pirate-calm", queue=pirate.MostRecentlyUsed),
    _pirate("I9", "pirate-calm", client=pirate.RemembersTokens),
    _pirate("I9", "pirate-calm", queue=pirate.RemembersEverybody),
    _pirate("I10", "pirate-lazy", server=pirate.KeepsJobs),
    _pirate("I10", "pirate-lazy", client=pirate.NeverDialsAgain),
    _pirate("I10", "pirate-simple", worker=pirate.NeverSaysReadyAgain),
    _pirate("I11", "pirate-lazy", client=pirate.SendsAgainWhatMayHaveRun),
    _pirate("I11", "pirate-lazy", client=pirate.TriesForEver),
    _pirate("I13", "pirate-garbage", queue=pirate.DiesOfGarbage),
    _pirate("I15", "pirate-overload", queue=pirate.KeepsWhatWasGivenUp),
    _pirate("I15", "pirate-overload", server=pirate.StartsWhatWasGivenUp),
    _pirate("idle", "pirate-overload", queue=pirate.LetsWait),
    _pirate("presence", "pirate-calm", queue=pirate.NeverBeats),
    _pirate("presence", "pirate-silence", queue=pirate.TrustsForEver),
    _pirate("presence", "pirate-paranoid", queue=pirate.JudgesTheBusy),
    _pirate("presence", "pirate-paranoid", worker=pirate.NeverBreathes),
    _pirate("presence", "pirate-paranoid", worker=pirate.LeavesTooSoon),
    _pirate("presence", "pirate-paranoid", worker=pirate.ForgetsReceived),
    _pirate("may_have_executed", "pirate-lazy", client=pirate.SaysItHasNotRun),
    _pirate("lossless", "pirate-calm", queue=pirate.LosesSome),
    # --- Titanic
    _titanic(
        "I3", "titanic-power", "acknowledges-early", TitanicParts(engine=titanic.AcknowledgesAtOnce)
    ),
    _titanic(
        "I3",
        "titanic-power",
        "reports-early",
        titanic.engine(attempts=titanic.ReportsWhatIsNotStored),
    ),
    _titanic("I3", "titanic-kill", "keeps-no-reply", titanic.engine(attempts=titanic.KeepsNoReply)),
    _titanic("I3", "titanic-calm", "gives-once", TitanicParts(engine=titanic.GivesOnce)),
    _titanic("I3", "titanic-power", "unsynced", titanic.unsynced()),
    _titanic("I3", "titanic-kill", "unrecovered", titanic.unrecovered()),
    _titanic(
        "I3", "titanic-compaction", "moves-nothing", titanic.store(compaction=titanic.MovesNothing)
    ),
    _titanic(
        "I3", "titanic-compaction", "syncs-too-late", titanic.store(compaction=titanic.SyncsTooLate)
    ),
    _titanic(
        "I15", "titanic-compaction", "forgets-closed", titanic.store(index=titanic.ForgetsClosed)
    ),
    _titanic(
        "I15", "titanic-kill", "closes-in-memory", titanic.engine(collecting=titanic.ClosesInMemory)
    ),
    _titanic("I2", "titanic-calm", "mixes-replies", TitanicParts(engine=titanic.MixesReplies)),
    _titanic(
        "I2",
        "titanic-calm",
        "gives-reasons-as-replies",
        titanic.engine(attempts=titanic.GivesReasonsAsReplies),
    ),
    _titanic(
        "I7", "titanic-poison", "retries-answers", titanic.engine(attempts=titanic.RetriesAnswers)
    ),
    _titanic("keys", "titanic-keys", "forgets-keys", titanic.engine(intake=titanic.ForgetsKeys)),
    _titanic("I16", "titanic-owners", "shares-keys", titanic.engine(register=titanic.SharesKeys)),
    _titanic(
        "I16",
        "titanic-owners",
        "serves-strangers",
        titanic.engine(collecting=titanic.ServesStrangers),
    ),
    _titanic(
        "I3",
        "titanic-owners",
        "closes-for-strangers",
        titanic.engine(collecting=titanic.ClosesForStrangers),
    ),
    _titanic(
        "I16",
        "titanic-owners",
        "sends-for-nobody",
        titanic.engine(dispatcher=titanic.SendsForNobody),
    ),
    _titanic("I16", "titanic-owners", "forgets-owners", TitanicParts(engine=titanic.ForgetsOwners)),
    _titanic(
        "I7", "titanic-poison", "tries-for-ever", titanic.engine(attempts=titanic.TriesForEver)
    ),
    _titanic(
        "I7", "titanic-services", "gives-up-at-once", titanic.engine(attempts=titanic.GivesUpAtOnce)
    ),
    _titanic("I9", "titanic-keys", "keeps-keys", titanic.engine(register=titanic.KeepsKeys)),
    _titanic(
        "I9",
        "titanic-compaction",
        "never-compacts",
        titanic.store(compaction=titanic.NeverCompacts),
    ),
    _titanic("I9", "titanic-calm", "ignores-its-end", TitanicParts(engine=titanic.IgnoresItsEnd)),
    _titanic(
        "I10",
        "titanic-services",
        "loses-what-is-turned-away",
        titanic.engine(dispatcher=titanic.LosesWhatIsTurnedAway),
    ),
    _titanic(
        "I13", "titanic-garbage", "dies-of-garbage", TitanicParts(engine=titanic.DiesOfGarbage)
    ),
    _titanic(
        "window", "titanic-services", "sends-all", titanic.engine(dispatcher=titanic.SendsAll)
    ),
    _titanic(
        "polite", "titanic-calm", "asks-for-each", titanic.engine(dispatcher=titanic.AsksForEach)
    ),
    _titanic("damage", "titanic-bitrot", "says-nothing-of-damage", titanic.silent()),
    _titanic("disk", "titanic-full", "knows-no-bound", titanic.store(bound=titanic.KnowsNoBound)),
    # --- a fail-over pair
    _pair("I12", "pair-freeze", pair.ServesOnWaking),
    _pair("I12", "pair-all-at-once", pair.BelievesOldWords),
    _pair("I12", "pair-freeze", pair.TakesItsPauseForSilence),
    _pair("I12", "pair-calm", pair.Impatient),
    _pair("I12", "pair-crash", pair.StartsActive),
    _pair("I12", "pair-islands", pair.CountsOneByOne),
    _pair("fatal", "pair-cut", pair.IgnoresEpochs),
    _pair("I10", "pair-calm", pair.FailsBack),
    _pair("I10", "pair-calm", pair.NeverTakesOver),
    _pair("I10", "pair-calm", pair.NeverGoesOn),
    _pair("I10", "pair-calm", pair.KeepsSwitchesToItself),
    _pair("I10", "pair-calm", pair.LeavesAtOnce),
    _pair("I10", "pair-calm", pair.NeverLeaves),
    _pair("I13", "pair-garbage", pair.DiesOfGarbage),
    # --- a pair of brokers
    _mdp("I12", "pair-broker-switch", gate=paired.NeverShuts),
    _mdp("I12", "pair-broker-freeze", half=paired.LeaseWithoutEnd),
    _mdp("I12", "pair-broker-kill", half=paired.SameEpoch),
    _mdp("I10", "pair-broker-calm", gate=paired.LetsNobodyIn),
    _mdp("I10", "pair-broker-switch", broker=paired.KeepsEverybody),
    _mdp("I11", "pair-broker-switch", broker=paired.GivesBackTooMuch),
    _mdp("may_have_executed", "pair-broker-switch", broker=paired.GivesBackTooMuch),
    # --- principals with rights and quotas
    _mdp("I16", "rights-calm", broker=rights.AnswersTheLastCaller),
    _mdp("I16", "rights-calm", broker=rights.NamesTheWorker),
    _mdp("I16", "rights-strangers", broker=rights.KeepsForeignCallIds),
    _mdp("I16", "rights-strangers", broker=rights.BelievesEverybody),
    _mdp("I17", "rights-calm", broker=rights.ForwardsWhatItShouldDeny),
    _mdp("I17", "rights-reload", broker=rights.ChecksTheFirstRequestOnly),
    _mdp("I17", "rights-strangers", broker=rights.RegistersBeforeItChecks),
    _mdp("I17", "rights-reload", broker=rights.KeepsRevokedWorkers),
    _mdp("I17", "rights-reload", broker=rights.ReviewsOneByOne),
    _mdp("I17", "rights-reload", broker=rights.KeepsQueuedRequests),
    _mdp("I18", "rights-overload", broker=rights.CountsPerConnection),
    _mdp("I18", "rights-reload-crashes", broker=rights.CountsRedeliveredTwice),
    _mdp("I18", "rights-reload-crashes", broker=rights.CountsForThoseWhoLeft),
    _mdp("I18", "rights-old-dialects", broker=rights.KeepsJoinedPartials),
    _mdp("I18", "rights-calm", broker=rights.CountsNamesForEver),
    _mdp("I18", "rights-old-dialects", broker=rights.ReadsOn),
    _mdp("I19", "rights-reload", broker=rights.EndsRequestsOfAll),
    _mdp("I19", "rights-reload", broker=rights.ExpelsAllWorkers),
    # --- pools
    _pool("I14", "pool-calm", SLOW, orphans=pool.D1WaitsTheWrongWayRound),
    _pool("I14", "pool-calm", activity=pool.D2PassesOnTheSecondReport),
    _pool("I14", "pool-calm", POISON, queues=pool.D3HasNoDeadLetterExchange),
    _pool("I14", "pool-calm", POISON, dead_letters=pool.D4ReadsAnotherHeader),
    _pool("I14", "pool-calm", POISON, dead_letters=pool.D4NeverAcknowledges),
    _pool("I2", "pool-calm", POISON, dead_letters=pool.D4ForgetsTheCorrelationId),
    _pool("I14", "pool-calm", connect=pool.D5OwnsTheOrphans),
    _pool("I14", "pool-rabbit", queues=pool.D6EndsWhenRefused),
    _pool("I14", "pool-calm", orphans=pool.D7WaitsInLine),
    _pool("I14", "pool-calm", POISON, queues=pool.D8CountsNoDeliveries),
    _pool("I14", "pool-calm", groups=pool.D13LeavesWorkersBehind),
    _pool("I14", "pool-manager", orphans=pool.AcknowledgesAtOnce),
    _pool("I14", "pool-calm", orphans=pool.NeverPutsBack),
    _pool("I14", "pool-calm", orphans=pool.ForgetsExpirations),
    _pool("I15", "pool-rabbit", EXPIRING, orphans=pool.HastyWithExpirations),
    _pool("I14", "pool-brief", queues=pool.DeletesWhatIsNotEmpty),
    _pool("I14", "pool-brief", HELD, queues=pool.DeletesUnderItsWorkers),
    _pool("I14", "pool-brief", COUNTED_LATE, queues=pool.DeletesAfterOneLook),
    _pool("I14", "pool-calm", queues=pool.NeverUnbinds),
    _pool("I14", "pool-calm", queues=pool.NeverDeletes),
    _pool("I14", "pool-meddling", SLOW, queues=pool.TrustsWhatItRemembers),
    _pool("I14", "pool-calm", QUICK, groups=pool.StopsBeforeItKnows),
    _pool("I14", "pool-manager", LEAVING, groups=pool.StopsAgainAndAgain),
    _pool("I14", "pool-brief", QUICK, groups=pool.StopsTheUnbound),
    _pool("I14", "pool-driver", {"faults_per_s": 0.6}, groups=pool.GivesUpOnGroups),
    _pool("I14", "pool-calm", groups=pool.ReplacesAllAtOnce),
    _pool("I10", "pool-calm", groups=pool.NeverReplaces),
    _pool("I14", "pool-brief", {"start_s": 2.0}, tracker=pool.RemovesWithoutLooking),
    _pool("I14", "pool-calm", tracker=pool.ShortensLives),
    _pool("I7", "pool-calm", POISON, dead_letters=pool.KeepsNoPoison),
    _pool("I13", "pool-meddling", dead_letters=pool.DiesOfHeaders),
    _pool("I14", "pool-calm", orphans=pool.RemembersTickets),
    _pool("I9", "pool-calm", activity=pool.RemembersReports),
    _pool("I14", "pool-brief", SLOW_STARTS, activity=pool.KeepsWhatItStops),
    # --- RPC over AMQP
    _amqp("I1", "amqp-calm", amqp.AnswersTwice),
    _amqp("I1", "amqp-workers", amqp.ForgetsToExpire),
    _amqp("I2", "amqp-overload", amqp.TakesLateReplies),
    _amqp("I5", "amqp-calm", amqp.JumblesPartials),
    _amqp("I5", "amqp-streams", amqp.MissesSome),
    _amqp("I7", "amqp-workers", amqp.RunsForEver),
    _amqp("I9", "amqp-overload", amqp.TakesOneMore),
    _amqp("I9", "amqp-overload", amqp.TakesTooMany),
    _amqp("I9", "amqp-rabbit", amqp.RemembersCalls),
    _amqp("I10", "amqp-deleted", amqp.StaysAway),
    _amqp("I10", "amqp-deleted", amqp.KeepsTheOldQueue),
    _amqp("I10", "amqp-drain", amqp.NeverAcknowledges),
    _amqp("I11", "amqp-once", amqp.SendsWhatMayHaveRun),
    _amqp("I11", "amqp-rabbit", amqp.TriesForEver),
    _amqp("I11", "amqp-overload", amqp.IsImpatient),
    _amqp("I13", "amqp-garbage", amqp.DiesOfGarbage),
    _amqp("I13", "amqp-garbage", amqp.PunishesTheInnocent),
    _amqp("I15", "amqp-cancels", amqp.ForgetsCancels),
    _amqp("I15", "amqp-late", amqp.PublishesAnyhow),
    _amqp("may_have_executed", "amqp-workers", amqp.SaysItHasNotRun),
    _amqp("acked-last", "amqp-calm", amqp.AcknowledgesAtOnce),
    _amqp("returned", "amqp-deleted", amqp.IgnoresReturns),
    _amqp("manners", "amqp-calm", amqp.AcknowledgesTwice),
    _amqp("manners", "amqp-rabbit", amqp.KeepsWhatIsLost),
    _amqp("drain", "amqp-drain", amqp.LeavesAtOnce),
    _amqp("heard", "amqp-quiet", amqp.NeverBeats),
    _amqp("heard", "amqp-standstill", amqp.WaitsForEver),
    _amqp("lossless", "amqp-calm", amqp.HearsBadly),
    # Bugs that the simulator found, re-introduced.
    _amqp("I15", "amqp-cancels", amqp.ForgetsCopies),
    _amqp("returned", "amqp-returned", amqp.WaitsForTheNextReturn),
    # --- real shells
    _shells("I1", "shells-swarm", client=shells.IgnoresItsTimer),
    _shells("I1", "shells-swarm", client=shells.EndsLate),
    _shells("I2", "shells-calm", client=shells.HandsOutTheLast),
    _shells("I3", "shells-titanic", titanic=shells.SyncsNothing),
    _shells("I3", "shells-replica", broker=shells.LeavesItsReplicaBehind),
    _shells("I5", "shells-calm", _BEHIND_A_BROKER, client=shells.SkipsPartials),
    _shells("I11", "shells-swarm", _BEHIND_A_BROKER, client=shells.RepeatsAnything),
    _shells("I9", "shells-calm", client=shells.KeepsItsTimer),
    _shells("I9", "shells-calm", worker=shells.LeavesATask),
    _shells("I9", "shells-calm", worker=shells.IgnoresSigterm),
    _shells("I10", "shells-swarm", client=shells.GivesUp),
    _shells("I10", "shells-swarm", client=shells.NeverCancels),
    _shells("I13", "shells-swarm", client=shells.FailsWhenCancelled),
    _shells("I10", "shells-swarm", _BEHIND_A_BROKER, worker=shells.DropsFailures),
    _shells("lossless", "shells-calm", client=shells.GivesUp),
    _shells("may_have_executed", "shells-swarm", client=shells.SaysItHasNotRun),
    _shells("may_have_executed", "shells-titanic", client=shells.SaysItWasNotStored),
    _shells("I10", "shells-deaths", {"transport": Transport.QUEUE}, queue=shells.ListensOnce),
    _shells("I9", "shells-pool-calm", manager=shells.StopsNoGroup),
    _shells("lossless", "shells-pool-calm", manager=shells.SeesNoRequests),
    _shells("I10", "shells-pool", manager=shells.StartsAGroupOnce),
)
