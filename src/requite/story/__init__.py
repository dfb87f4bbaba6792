"""What became of a request, by the journals: its verdict, its events in words, failed requests.

    vocabulary.py      the names of kinds, outcomes, verdicts and contradictions
    rules.py           the rules of the audit: who is the authority, faults, the verdict
    contradictions.py  what the logs of one request contradict
    words.py           verdicts, contradictions and the outcome for the caller, in words
    steps.py           one event in words
    telling.py         `Story`: all of that for one request, from the journals
    failures.py        the newest failed requests
    search_process.py  a process that answers questions about stories and failures
    searcher.py        `Searcher`: asks it from an event loop

Plain Python, without Spark. `requite why` tells stories; the audit (`requite.spark.audit`) applies
the same rules to all requests of a journal, and its report uses the same words.
"""
