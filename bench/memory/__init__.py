"""What each pending request, idle connection and idle worker takes in memory: `python -m
bench.memory`.

Each case starts a real process, adds a number of things to it, and divides the growth of its
memory by their number. The memory is that which the process alone uses (USS; proc(5),
smaps_rollup), without the buffers of the kernel's sockets. With `--trace`, the process also runs
under tracemalloc, and the lines that have allocated most of its growth are printed.
"""
