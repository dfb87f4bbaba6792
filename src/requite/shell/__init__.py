"""Shells: perform the effects of engines on asyncio, in the calling thread or in the simulator."""
