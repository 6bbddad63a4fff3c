"""`python -m ftagent` is `ft`."""

from __future__ import annotations

import sys

from ftagent.cli import main

if __name__ == "__main__":
    sys.exit(main())
