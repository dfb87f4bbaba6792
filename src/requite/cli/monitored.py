"""Monitors of commands that have no event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread

from requite.cli.output import complain, say
from requite.cli.serving import Watch
from requite.errors import TransportError
from requite.shell.aio import new_event_loop


def run_monitored(monitor: Watch | None, run: Callable[[], None], *, as_json: bool) -> bool:
    """Call `run`, with a monitor in a thread that has an event loop; first print its URL, on stderr
    if stdout is for machines (`as_json`).

    Returns False if the address of the monitor cannot be bound, and reports it.
    """
    if monitor is None:
        run()
        return True
    loop = new_event_loop()
    thread = Thread(target=loop.run_forever, name="requite-metrics", daemon=True)
    thread.start()

    def await_(work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        await_(monitor.start())
        await_(monitor.started())
    except TransportError as error:
        complain(str(error))
        return False
    else:
        tell = complain if as_json else say
        tell(f"metrics at {monitor.url}/metrics")
        run()
        return True
    finally:
        await_(monitor.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
