"""Moves, and what each of their steps did."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.identity import encode, new_id
from controlplane.moves.machine import ENDED, State
from controlplane.topology.models import Cell

MOVE = "mov"


class TenantMove(models.Model):
    """A tenant on its way from one cell to another. `state` is along `machine.TRANSITIONS`."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="moves")
    source = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="moves_away")
    destination = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="moves_here")
    state = models.CharField(
        max_length=10, choices=[(s.value, s.value) for s in State], default=State.PREPARE.value
    )
    why = models.TextField(blank=True)  # one line: what it does, or what it waits for
    choice = models.TextField(blank=True)  # why this cell
    attempt = models.IntegerField(default=1)  # a takeover begins the next one
    lifts = models.IntegerField(default=0)  # barriers and seals that did not hold
    # What this attempt is based on, read in PREPARE.
    epoch = models.BigIntegerField(default=0)  # the tenant's at the source: its own or its cell's
    owned_epoch = models.BigIntegerField(default=0)  # of the tenant's ownership row
    source_epoch = models.BigIntegerField(default=0)  # of the cell itself, as it says
    destination_epoch = models.BigIntegerField(default=0)
    new_epoch = models.BigIntegerField(null=True, blank=True)  # under which it lives at the destination
    progress = models.JSONField(default=dict)  # rows, rows_total, bytes, lag_bytes, eta_seconds
    facts = models.JSONField(default=dict)  # what the steps have found; see driving.py
    abort_reason = models.TextField(null=True, blank=True)  # set: it is to be given up
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
                fields=["tenant"],
                condition=~Q(state__in=sorted(s.value for s in ENDED)),
                name="move_one_open_for_a_tenant",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in State]), name="move_state_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(source=models.F("destination")), name="move_goes_somewhere_else"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-created_at"], name="moves_of_a_tenant")]

    def __str__(self) -> str:
        return f"{self.public_id}: {self.source_id} to {self.destination_id}"

    @property
    def public_id(self) -> str:
        return encode(MOVE, self.id)

    @property
    def at(self) -> State:
        """Where it is."""
        return State(self.state)

    @property
    def link(self) -> str:
        """What the cells call this attempt's publication, slot, role and subscription."""
        return f"ch_move_{self.id.hex}_{self.epoch}_{self.attempt}"


class MoveStep(models.Model):
    """One stay of a move in a state."""

    id = models.BigAutoField(primary_key=True)
    move = models.ForeignKey(TenantMove, on_delete=models.CASCADE, related_name="steps")
    attempt = models.IntegerField()
    state = models.CharField(max_length=10)
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)
    event = models.CharField(max_length=12, blank=True)  # what ended it
    why = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"{self.state} of {self.move_id}"
