"""The number that outranks every earlier holder of a run."""

from __future__ import annotations

from cells.contract import EPOCH_STRIDE


def next_epoch(previous: int, ownership_epoch: int) -> int:
    """The epoch of a new claim.

    Higher than every claim before it, and higher than anything an earlier owner of the tenant
    could have handed out: targets and workers compare one number and need not know which of
    the two changed.
    """
    return max(previous + 1, ownership_epoch * EPOCH_STRIDE)
