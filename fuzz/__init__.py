"""Coverage-guided fuzzing of everything that reads bytes of a peer; see `python -m fuzz --help`."""
