"""`requite pool demo`: watch a pool on RabbitMQ survive."""

from __future__ import annotations

from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.show.options import USUAL, Scale


def demo(*, scale: Scale = USUAL, as_json: JsonFlag = False, logging: Logging = QUIET) -> int:
    """Watch a pool on RabbitMQ survive.

    Starts a RabbitMQ of its own and a manager (`requite pool run`), and asks for
    the nearest neighbours of the airports of some countries, each within its
    country. The key of a request is the country, and a worker holds the airports
    of one: the manager starts it with the first request, and stops it when none
    has come for a while. Meanwhile workers, the manager and RabbitMQ are killed.
    Every answer is compared with a direct computation; at last Spark proves from
    the journals of clients, workers and managers that each request ended once.

    It is `requite demo --pattern pool`, with the same options, result and exit
    codes. RabbitMQ has to be installed (on Debian: apt-get install
    rabbitmq-server); REQUITE_RABBITMQ_SERVER names its rabbitmq-server where that
    is not on the PATH. What runs already is not touched.

      $ requite pool demo
      $ requite pool demo --requests 1000 --broker-kills 1 --no-audit
    """
    from requite.cli.show.report import show

    logging.start()
    return show("pool", scale, as_json=as_json)
