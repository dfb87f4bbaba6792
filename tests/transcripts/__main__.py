"""Rewrite the transcripts on purpose: `python -m tests.transcripts [NAME ...]`; read the diff."""

import sys

from tests.transcripts.play import names, rewrite

for name in sys.argv[1:] or names():
    print(f"{name}: {'changed' if rewrite(name) else 'as it was'}")
