"""Sweeps: seeds of the simulator in parallel, what they violated as tables.

runs.py    plans, waves, and the tables
seeds.py   what a task does with its seeds
"""
