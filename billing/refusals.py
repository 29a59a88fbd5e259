"""What billing's use-cases may refuse. The API maps them to problem documents, pages to words."""

from __future__ import annotations

from collections.abc import Sequence


class Refused(Exception):
    """Base: the use-case did nothing."""


class NotFound(Refused):
    """There is no such thing, or it is somebody else's."""


class Invalid(Refused):
    """The input is wrong; all its faults, as (JSON pointer, what is wrong)."""

    def __init__(self, faults: Sequence[tuple[str, str]]):
        super().__init__("; ".join(f"{pointer}: {detail}" for pointer, detail in faults))
        self.faults = tuple(faults)


class Conflicting(Refused):
    """The state does not allow it."""


class VersionMismatch(Refused):
    """Somebody else changed it first. `current` is the version that holds."""

    def __init__(self, current: int):
        super().__init__(f"the current version is {current}")
        self.current = current


class Unavailable(Refused):
    """Something needed cannot be reached now. Trying again later may work."""


def refuse_faults(faults: Sequence[tuple[str, str]]) -> None:
    """Raises `Invalid` if there are any."""
    if faults:
        raise Invalid(faults)
