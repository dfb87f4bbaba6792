"""Performs what engines ask for: on asyncio, in the caller's own thread, or in the simulator."""
