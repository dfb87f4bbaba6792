"""Sweeps: many seeds of the simulator in parallel, with violations as tables.

runs.py    plans, waves, and the tables
seeds.py   runs the seeds of a task
"""
