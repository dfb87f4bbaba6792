"""Every check of Titanic's simulation finds what it is there for, in Titanics that are broken."""

from __future__ import annotations

from tests.sim import titanic_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases

from requite.sim import Options
from requite.sim.titanic.node import TitanicParts

_CASES: list[tuple[str, str, TitanicParts, str]] = [
    # invariant, scenario, the broken Titanic, its name
    ("I3", "titanic-power", TitanicParts(engine=mutants.AcknowledgesAtOnce), "acknowledges-early"),
    (
        "I3",
        "titanic-power",
        mutants.engine(attempts=mutants.ReportsWhatIsNotStored),
        "reports-early",
    ),
    ("I3", "titanic-kill", mutants.engine(attempts=mutants.KeepsNoReply), "keeps-no-reply"),
    ("I3", "titanic-calm", TitanicParts(engine=mutants.GivesOnce), "gives-once"),
    ("I3", "titanic-power", mutants.unsynced(), "unsynced"),
    ("I3", "titanic-kill", mutants.unrecovered(), "unrecovered"),
    ("I3", "titanic-compaction", mutants.store(compaction=mutants.MovesNothing), "moves-nothing"),
    ("I3", "titanic-compaction", mutants.store(compaction=mutants.SyncsTooLate), "syncs-too-late"),
    ("I15", "titanic-compaction", mutants.store(index=mutants.ForgetsClosed), "forgets-closed"),
    ("I15", "titanic-kill", mutants.engine(collecting=mutants.ClosesInMemory), "closes-in-memory"),
    ("I2", "titanic-calm", TitanicParts(engine=mutants.MixesReplies), "mixes-replies"),
    ("keys", "titanic-keys", mutants.engine(intake=mutants.ForgetsKeys), "forgets-keys"),
    ("I7", "titanic-poison", mutants.engine(attempts=mutants.TriesForEver), "tries-for-ever"),
    ("I7", "titanic-services", mutants.engine(attempts=mutants.GivesUpAtOnce), "gives-up-at-once"),
    ("I9", "titanic-keys", mutants.engine(register=mutants.KeepsKeys), "keeps-keys"),
    ("I9", "titanic-compaction", mutants.store(compaction=mutants.NeverCompacts), "never-compacts"),
    ("I9", "titanic-calm", TitanicParts(engine=mutants.IgnoresItsEnd), "ignores-its-end"),
    (
        "I10",
        "titanic-services",
        mutants.engine(dispatcher=mutants.LosesWhatIsTurnedAway),
        "loses-what-is-turned-away",
    ),
    ("I13", "titanic-garbage", TitanicParts(engine=mutants.DiesOfGarbage), "dies-of-garbage"),
    ("window", "titanic-services", mutants.engine(dispatcher=mutants.SendsAll), "sends-all"),
    ("polite", "titanic-calm", mutants.engine(dispatcher=mutants.AsksForEach), "asks-for-each"),
    ("damage", "titanic-bitrot", mutants.silent(), "says-nothing-of-damage"),
    ("disk", "titanic-full", mutants.store(bound=mutants.KnowsNoBound), "knows-no-bound"),
]


# These store no reply, so that none can be read.
_KNOBS = {name: {"cache_bytes_max": 1 << 20} for name in ("reports-early", "keeps-no-reply")}


BROKEN = [
    Broken(invariant, scenario, name, Options(titanic_parts=parts, knobs=_KNOBS.get(name, {})))
    for invariant, scenario, parts, name in _CASES
]


@cases(BROKEN)
def test_a_broken_titanic_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_a_titanic_that_is_whole() -> None:
    assert_whole(scenario for _, scenario, _, _ in _CASES)


def test_every_kind_of_violation_has_a_broken_titanic() -> None:
    broken = {invariant for invariant, _, _, _ in _CASES}
    assert broken >= {"I2", "I3", "I7", "I9", "I10", "I13", "I15"}
    assert broken >= {"keys", "window", "polite", "disk", "damage"}
