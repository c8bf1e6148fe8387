"""Where `kvplan` and `python -m kvplan` start."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; interrupted before it can tell, while its modules load, it ends without a traceback."""
    patient = signal.getsignal(signal.SIGINT)
    if patient is signal.default_int_handler:  # else somebody has it ignored, as for jobs in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kvplan.cli.main import main as run  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, patient)
    run()


if __name__ == "__main__":
    main()
