"""What is written to other regions: derived from what else is metered, so that anybody can check it."""

from __future__ import annotations

from collections.abc import Mapping

from cells.contract import Metric
from cells.domain.job import SINGLE_REGION

#: Row writes that one of a metric stands for, as the cost model counts them. An attempt: the run, its claim
#: and its end, the job's next timer, its history. A step, beside its attempts: the execution and two events.
ROW_WRITES: Mapping[Metric, int] = {Metric.RUN_ATTEMPTS: 5, Metric.WORKFLOW_STEPS: 3}


def replicated_writes(metric: Metric, region_policy: str, quantity: int, *, standbys: int) -> int:
    """Row writes in other regions of so many of a metric: once for each standby of the cell, and none of what
    stays in one region."""
    if region_policy == SINGLE_REGION or not region_policy:
        return 0
    return ROW_WRITES.get(metric, 0) * quantity * standbys
