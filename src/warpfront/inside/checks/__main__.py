"""`python -m warpfront.inside.checks`, as it was called before."""

import sys

from warpfront_checks.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
