"""The clocks of shells, in seconds: `now` for engines, which never jumps back, and `wall`.

`now` has an arbitrary start; `wall` counts from 1970. The simulator replaces both while it runs; so
call them by the name of this module.
"""

from time import monotonic as now
from time import time as wall

__all__ = ["now", "wall"]
