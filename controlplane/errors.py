"""What a use-case may refuse. The API maps them to problem documents, the console to words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing wrong with the input. `pointer` is a JSON pointer (`/scopes/0`)."""

    pointer: str
    detail: str


class Refused(Exception):
    """Base: the use-case did nothing."""


class NotFound(Refused):
    """There is no such thing here, or it is somebody else's."""


class Forbidden(Refused):
    """The actor may not do this."""


class Invalid(Refused):
    """The input is wrong; all its faults."""

    def __init__(self, faults: Sequence[Fault]):
        super().__init__("; ".join(f"{f.pointer}: {f.detail}" for f in faults))
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


def one_line(text: str) -> bool:
    """Whether a name holds no control character: it goes into headers, mail subjects and logs."""
    return all(unicodedata.category(c) not in ("Cc", "Zl", "Zp") for c in text)


def invalid(pointer: str, detail: str) -> Invalid:
    """One fault."""
    return Invalid([Fault(pointer=pointer, detail=detail)])
