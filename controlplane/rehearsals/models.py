"""Rehearsals, and the cells that take part."""

from __future__ import annotations

import enum
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.identity import encode, new_id
from controlplane.topology.models import Cell, Region

REHEARSAL = "reh"


class Stage(enum.StrEnum):
    """Where a rehearsal is: one after the other, or FAILED from the first. Names are stored."""

    CUTTING = "CUTTING"  # the keepers are told
    CUT = "CUT"  # until the time they were told; who lets go and who takes over is watched
    RETURNING = "RETURNING"  # the region is heard again: it follows, or strayed
    COUNTING = "COUNTING"  # the cells' ledgers are read
    DONE = "DONE"
    FAILED = "FAILED"  # not every keeper took part; what was cut ends by itself


ENDED = frozenset({Stage.DONE, Stage.FAILED})
#: What may follow what.
FOLLOWS: dict[Stage, frozenset[Stage]] = {
    Stage.CUTTING: frozenset({Stage.CUT, Stage.FAILED}),
    Stage.CUT: frozenset({Stage.RETURNING}),
    Stage.RETURNING: frozenset({Stage.COUNTING}),
    Stage.COUNTING: frozenset({Stage.DONE}),
    Stage.DONE: frozenset(),
    Stage.FAILED: frozenset(),
}


class Rehearsal(models.Model):
    """A region that is cut off from chosen cells' other sites for some seconds."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="rehearsals")
    state = models.CharField(
        max_length=9, choices=[(s.value, s.value) for s in Stage], default=Stage.CUTTING.value
    )
    why = models.TextField(blank=True)
    seconds = models.IntegerField()  # how long the cut lasts
    cut_at = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)  # when it ends by itself, as the keepers were told
    started_by = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    # Who drives it, until when.
    holder = models.UUIDField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["region"],
                condition=~Q(state__in=sorted(s.value for s in ENDED)),
                name="rehearsal_one_open_for_a_region",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in Stage]), name="rehearsal_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.region_id} cut off for {self.seconds} s"

    @property
    def public_id(self) -> str:
        return encode(REHEARSAL, self.id)

    @property
    def at(self) -> Stage:
        """Where it is."""
        return Stage(self.state)


class RehearsedCell(models.Model):
    """A cell that takes part."""

    id = models.BigAutoField(primary_key=True)
    rehearsal = models.ForeignKey(Rehearsal, on_delete=models.CASCADE, related_name="cells")
    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="rehearsals")
    epoch = models.BigIntegerField()  # before
    facts = models.JSONField(default=dict)  # what was seen, and when (seconds since 1970); `watching.py`
    counted = models.JSONField(null=True, blank=True)  # as the cell told of its ledger
    report = models.JSONField(null=True, blank=True)  # `report.report_of`

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["rehearsal", "cell"], name="rehearsal_has_a_cell_once"),
        ]

    def __str__(self) -> str:
        return f"{self.cell_id} in {self.rehearsal_id}"
