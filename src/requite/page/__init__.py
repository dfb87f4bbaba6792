"""The web page of a broker: what it does now and did in the last hour, and the story of a request.
The web page of the manager of a pool: its groups, and what started or stopped them.

    page.py         `Page`: the addresses of a broker's page, and who may see them
    readings.py     the broker at one moment, shared by all who look
    history.py      the last hour
    home.py         the page of the broker: its state, and the table of its services
    services.py     the page of one service: its workers, and its curves
    requests.py     the pages of requests: their stories, and those that failed
    pool.py         `PoolPage`: the addresses of a pool's page
    groups.py       the page of a pool: its manager, its groups, and their history
    views.py        the parts of all these pages, rendered once for all who look
    streams.py      server-sent events, which keep open pages current
    assets.py       the style sheet and the script
    curves.py       the curves of the last hour
    charts.py       curves and timelines, as SVG
    rendering.py    templates, and the words and figures in them

Each number comes from the counters and tables of the broker's engine (`requite.metrics.figures`),
and each story from its journal. The page of a pool shows the JSON of `/status` of its manager.
Needs the extra `web`.
"""
