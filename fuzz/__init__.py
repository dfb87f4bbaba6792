"""Coverage-guided fuzzing of all code that reads bytes of a peer; see `python -m fuzz --help`."""
