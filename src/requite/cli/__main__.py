"""`python -m requite.cli` is `requite`."""

import sys

from requite.cli import main

if __name__ == "__main__":
    sys.exit(main())
