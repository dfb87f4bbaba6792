"""`requite pool demo`: watch a pool on RabbitMQ survive."""

from __future__ import annotations

from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.show.options import USUAL, Scale


def demo(*, scale: Scale = USUAL, as_json: JsonFlag = False, logging: Logging = QUIET) -> int:
    """Watch a pool on RabbitMQ survive.

    Starts its own RabbitMQ and a manager (`requite pool run`), and requests the
    nearest neighbours of airports within their country. The key of a request is
    the country, and a worker holds the airports of one country: the manager
    starts it with the first request, and stops it after a while without
    requests. Meanwhile the demo kills workers, the manager and RabbitMQ. It
    compares every answer with a direct computation; in the end Spark proves from
    the journals of clients, workers and managers that each request ended once.

    It is `requite demo --pattern pool`, with the same options, result and exit
    codes. RabbitMQ has to be installed (on Debian: apt-get install
    rabbitmq-server); set REQUITE_RABBITMQ_SERVER if rabbitmq-server is not on the
    PATH. The demo does not touch a RabbitMQ that already runs.

      $ requite pool demo
      $ requite pool demo --requests 1000 --broker-kills 1 --no-audit
    """
    from requite.cli.show.report import show

    logging.start()
    return show("pool", scale, as_json=as_json)
