"""`python -m warpfront.matrix` prints the JSON schema of matrix.yaml, which every editor reads."""

import sys

from warpfront.system.packaged import packaged_text

if __name__ == "__main__":
    sys.stdout.write(packaged_text("matrix.schema.json"))
