"""The process that searches journals for a `Searcher`, and keeps their indexes.

    python -m requite.story.search_process PLACE...

Each line of its input is a question as JSON, and is answered by one line of JSON:

    {"tell": REQUEST_ID}                what `requite why --json` prints, shortened
    {"failures": [SECONDS, COUNT]}      what `requite why --json --failed` prints

A story has its first 500 steps and events; `steps_more` and `events_more` count the others.
An answer with the one member `error` says why there is no other. The process ends with its input.
Between questions it makes the indexes of full segments: 0.1 s of CPU each (16 MiB), so that a
question waits no longer.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
from typing import Any, Final

from requite.errors import RequiteError
from requite.journal.search import IndexKeeper, search
from requite.story.failures import failures
from requite.story.telling import record_of, tell

_KEEP_EVERY_S: Final = 5.0
_MEMORY_BYTES_MAX: Final = 4 << 30
_NICE: Final = 10
_PARTS_MAX: Final = 500


def main(places: list[str]) -> None:
    """Answer questions until the input ends."""
    _yield_to_others()
    keeper = IndexKeeper(places)
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as questions:
        wait_s = 0.0
        while True:
            ready, _, _ = select.select([questions], [], [], wait_s)
            if not ready:
                wait_s = 0.0 if _made_one(keeper) else _KEEP_EVERY_S
                continue
            question = questions.readline()
            if not question:
                return
            sys.stdout.write(f"{json.dumps(_answer(places, json.loads(question)))}\n")
            sys.stdout.flush()


def _yield_to_others() -> None:
    """Lower the priority, and limit the memory, of this process."""
    os.nice(_NICE)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limited = _MEMORY_BYTES_MAX if soft == resource.RLIM_INFINITY else min(soft, _MEMORY_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_AS, (limited, hard))


def _made_one(keeper: IndexKeeper) -> bool:
    """Make an index that is missing; return whether there was one. A journal that cannot be read,
    such as one that does not exist yet, has none; questions about it get the reason."""
    try:
        return keeper.make_one()
    except (RequiteError, OSError):
        return False


def _answer(places: list[str], question: dict[str, Any]) -> dict[str, Any]:
    try:
        match question:
            case {"tell": str(request_id)}:
                findings = search(places, [bytes.fromhex(request_id)])
                return _shortened(record_of(tell(findings, request_id), request_id, findings))
            case {"failures": [float(within_s), int(count)]}:
                return failures(places, within_s, count).record()
        return {"error": f"{question} is not a question"}
    except (RequiteError, OSError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it has more events than fit into the memory of a search"}


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    """Return a story with a limited number of parts: a client may use an ID any number of times."""
    if not record["found"]:
        return record
    lists = {name: record[name] for name in ("steps", "events")}
    short = {name: parts[:_PARTS_MAX] for name, parts in lists.items()}
    more = {f"{name}_more": len(parts) - len(short[name]) for name, parts in lists.items()}
    return record | short | more


if __name__ == "__main__":
    main(sys.argv[1:])
