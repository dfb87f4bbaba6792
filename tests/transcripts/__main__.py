"""Rewrite transcripts after an intended change: `python -m tests.transcripts [NAME ...]`.

Review the diff afterwards.
"""

import sys

from tests.transcripts.play import names, rewrite

for name in sys.argv[1:] or names():
    print(f"{name}: {'changed' if rewrite(name) else 'as it was'}")
