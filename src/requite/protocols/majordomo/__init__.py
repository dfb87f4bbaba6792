"""Majordomo: clients, a broker, and workers of named services (MDP 0.1, 0.2 and 0.3)."""
