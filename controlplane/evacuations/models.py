"""Evacuations, their cells, and what each of their steps did."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.evacuations.machine import ENDED, ENDED_WHOLE, State, Whole
from controlplane.identity import encode, new_id
from controlplane.topology.models import Cell, Region

EVACUATION = "evc"


class EvacuationKind(models.TextChoices):
    """Which way cells go."""

    EVACUATE = "EVACUATE"  # out of the region, to their other sites
    FAIL_BACK = "FAIL_BACK"  # cells that were made in the region come back to it


class Evacuation(models.Model):
    """Cells that leave a region, or come back to it, a few at a time. `state` is along `machine.WHOLE`."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="evacuations")
    kind = models.CharField(max_length=9, choices=EvacuationKind.choices)
    state = models.CharField(
        max_length=8, choices=[(s.value, s.value) for s in Whole], default=Whole.RUNNING.value
    )
    why = models.TextField(blank=True)  # one line: what it does, or what it waits for
    at_once = models.IntegerField(default=1)  # cells under way at the same time
    calm_lag_ms = models.IntegerField(default=2_000)  # a cell that was handed over has to stay below it
    calm_seconds = models.IntegerField(default=10)  # for so long
    hand_back = models.BooleanField(default=False)  # an abort brings back what was handed over
    plan = models.JSONField(default=dict)  # as it was when it was started; `planning.told`
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
                condition=~Q(state__in=sorted(s.value for s in ENDED_WHOLE)),
                name="evacuation_one_open_for_a_region",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in Whole]), name="evacuation_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=EvacuationKind.values), name="evacuation_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(at_once__gte=1, at_once__lte=20), name="evacuation_pace_is_sane"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.region_id}"

    @property
    def public_id(self) -> str:
        return encode(EVACUATION, self.id)

    @property
    def at(self) -> Whole:
        """Where it is."""
        return Whole(self.state)


class EvacuatedCell(models.Model):
    """One cell of an evacuation. `state` is along `machine.TRANSITIONS`."""

    id = models.BigAutoField(primary_key=True)
    evacuation = models.ForeignKey(Evacuation, on_delete=models.CASCADE, related_name="cells")
    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="evacuations")
    position = models.IntegerField()  # in the order in which they go
    source = models.CharField(max_length=63)  # region that owns it
    target = models.CharField(max_length=63)  # region that shall
    state = models.CharField(
        max_length=9, choices=[(s.value, s.value) for s in State], default=State.WAITING.value
    )
    why = models.TextField(blank=True)
    returning = models.BooleanField(default=False)  # it is on the way back of an abort
    state_before = models.CharField(max_length=10, blank=True)  # of the cell: whether it took tenants
    epoch = models.BigIntegerField(default=0)  # under which its handover was asked for
    new_epoch = models.BigIntegerField(null=True, blank=True)
    lifts = models.IntegerField(default=0)  # handovers for which the target was not there in time
    progress = models.JSONField(default=dict)  # behind_bytes, lag_ms, moves
    facts = models.JSONField(default=dict)  # what the steps found; `loss` where there is one
    began_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evacuation", "cell"], name="evacuation_has_a_cell_once"),
            models.UniqueConstraint(
                fields=["cell"],
                condition=~Q(state__in=sorted(s.value for s in ENDED)),
                name="evacuation_one_open_for_a_cell",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in State]), name="evacuated_cell_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cell_id}: {self.source} to {self.target}"

    @property
    def at(self) -> State:
        """Where it is."""
        return State(self.state)


class EvacuationStep(models.Model):
    """One stay of a cell in a state."""

    id = models.BigAutoField(primary_key=True)
    evacuated = models.ForeignKey(EvacuatedCell, on_delete=models.CASCADE, related_name="steps")
    state = models.CharField(max_length=9)
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)
    event = models.CharField(max_length=13, blank=True)  # what ended it
    why = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"{self.state} of {self.evacuated_id}"
