"""`python -m kvplan` is `kvplan`."""

from __future__ import annotations

from kvplan.cli.main import main

if __name__ == "__main__":
    main()
