"""`python -m warpfront.matrix` prints the JSON schema: how data/matrix.schema.json is made."""

from __future__ import annotations

import json
import sys

from warpfront.matrix.reading import json_schema

if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2, sort_keys=True) + "\n")
