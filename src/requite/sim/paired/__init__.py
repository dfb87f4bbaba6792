"""Simulations of a pair of brokers, one of which serves, with clients and workers."""
