"""The simulation of Majordomo: a broker, its clients and its workers."""
