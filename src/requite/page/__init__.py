"""The web page of a broker: what it does now and did in the last hour, and the story of a request.

    page.py         `Page`: the addresses, and who may see them
    readings.py     the broker at one moment, shared by all who look
    history.py      the last hour
    home.py         the page of the broker: its state, and the table of its services
    services.py     the page of one service: its workers, and its curves
    requests.py     the pages of requests: their stories, and those that failed
    views.py        the parts of these pages, rendered once for all who look
    streams.py      server-sent events, which keep open pages current
    curves.py       the curves of the last hour
    charts.py       curves and timelines, as SVG
    rendering.py    templates, and the words and figures in them

Each number comes from the counters and tables of the broker's engine (`requite.metrics.figures`),
and each story from its journal. Needs the extra `web`.
"""
