"""`python -m warpfront`, and the program `warpfront`. Edge."""

from warpfront.cli.program import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
