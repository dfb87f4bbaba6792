"""How the cost of requite grows with what it serves: `python -m bench.growth`.

Each curve varies one quantity and measures the processor time per request and the memory of the
process that serves: the broker's, or that of a pool's manager. The load is that of `python -m
bench` (`bench.load`). Two curves have other figures: `overload` offers more requests than can be
answered, and `brokers` distributes services over several brokers.
"""
