"""`python -m sparktop`, the same program as the `sparktop` command."""

import sys

from sparktop.cli import main

if __name__ == "__main__":
    sys.exit(main())
