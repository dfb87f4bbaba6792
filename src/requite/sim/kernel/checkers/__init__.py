"""Checkers that several protocols share."""
