"""Billing's refusals as the control plane's own: pages know one kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from billing import refusals
from controlplane import errors
from controlplane.errors import Fault


def translated(refused: refusals.Refused) -> errors.Refused:
    """The same refusal of ours."""
    match refused:
        case refusals.NotFound():
            return errors.NotFound(str(refused))
        case refusals.Invalid():
            return errors.Invalid(
                [Fault(pointer=pointer, detail=detail) for pointer, detail in refused.faults]
            )
        case refusals.VersionMismatch():
            return errors.VersionMismatch(refused.current)
        case refusals.Unavailable():
            return errors.Unavailable(str(refused))
        case _:
            return errors.Conflicting(str(refused))


@contextmanager
def of_billing() -> Iterator[None]:
    """What billing refuses inside comes out as `controlplane.errors.Refused`."""
    try:
        yield
    except refusals.Refused as refused:
        raise translated(refused) from refused
