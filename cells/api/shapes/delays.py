"""What a tenant's runs waited for."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from cells.api.shapes.base import ListShape, Shape


class DelayPart(Shape):
    """One thing that was waited for."""

    part: Literal["window", "retries", "quota", "workers", "own_queue", "others", "target"] = Field(
        description="window: the dispatch windows asked for; retries: earlier attempts and the waiting "
        "between them; quota: the tenant's own quotas, pause or budget; workers: its own pull workers; "
        "own_queue: the cell's queue, behind its own runs; others: the cell's queue, behind other tenants; "
        "target: a free place at the target."
    )
    ms: int = Field(description="Of all runs together.")
    mean_ms: float | None = Field(description="Of one run.")
    share: float | None = Field(description="Percent of all that was waited.")


class CrowdedMinute(Shape):
    """A minute in which other tenants were waited for."""

    minute: datetime
    runs: int
    others_ms: int
    others_share: float | None = Field(
        description="Percent of the runs that began on the cell in it, in tens; null where few tenants ran."
    )


class Delays(ListShape):
    """The delay of a period, part by part."""

    since: datetime
    until: datetime
    runs: int
    complete: bool = Field(description="False: there were more runs, and the newest were looked at.")
    waited_ms: int
    mean_ms: float | None
    parts: list[DelayPart]
    crowded_minutes: list[CrowdedMinute] = Field(description="Those in which others cost the most.")
    sentence: str
    method: str = Field(description="How it is counted, and its bounds.")
