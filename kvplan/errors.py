"""The error tree: every failure that a user can cause has a class, a hint and an exit code."""

from __future__ import annotations


class KvplanError(Exception):
    """Base of all kvplan errors.

    Args:
        message: What is wrong, in one line.
        hint: The next thing to do, or None.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(KvplanError):
    """A value or combination of values that makes no sense (negative counts, tp that does not divide the heads)."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A model, GPU, engine or option name that kvplan doesn't have; the hint names the nearest ones."""


class InfeasibleError(KvplanError):
    """The question has no answer on this hardware (does not fit, SLO not reachable)."""

    exit_code = 3


class SpecError(KvplanError):
    """A file or config that is broken, incomplete or not understood: names the file, the field and the rule."""

    exit_code = 4


class UnsupportedModelError(SpecError):
    """A model config that is valid but that kvplan does not understand: names the field, never guesses."""


class HubError(KvplanError):
    """The Hugging Face hub can't be reached, or a repository is missing or gated."""

    exit_code = 5
