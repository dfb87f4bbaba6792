"""The clocks of shells, in seconds: monotonic `now` for engines, and `wall`.

`now` has an arbitrary start; `wall` counts from 1970. The simulator replaces both while it runs, so
call them as `clock.now` and `clock.wall`.
"""

from time import monotonic as now
from time import time as wall

__all__ = ["now", "wall"]
