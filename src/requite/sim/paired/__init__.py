"""Simulations of a pair of brokers: two of them, of which one serves, and those who follow it."""
