"""Where tenants can live, and where they do."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now

from controlplane.identity import encode, new_id

#: Prefix of relocations' public ids.
RELOCATION = "rel"
NAME = RegexValidator(r"\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z", "Lower case letters, digits, hyphens.")


class Region(models.Model):
    """A place with cells of its own."""

    name = models.CharField(primary_key=True, max_length=63, validators=[NAME])
    label = models.CharField(max_length=120, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


class CellKind(models.TextChoices):
    """Whom a cell takes."""

    SHARED = "SHARED"  # many tenants
    DEDICATED = "DEDICATED"  # one


class CellState(models.TextChoices):
    """Whether a cell takes more."""

    OPEN = "OPEN"  # takes new tenants
    CORDONED = "CORDONED"  # keeps its tenants, takes no new ones
    DRAINING = "DRAINING"  # its tenants are being moved away
    RETIRED = "RETIRED"  # has none; gone


class Cell(models.Model):
    """One isolated data plane: the unit of isolation and of ownership."""

    name = models.CharField(primary_key=True, max_length=63, validators=[NAME])
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="cells")
    kind = models.CharField(max_length=10, choices=CellKind.choices, default=CellKind.SHARED)
    state = models.CharField(max_length=10, choices=CellState.choices, default=CellState.OPEN)
    # Measured runs a second the cell carries with one host less than it has (N+1).
    capacity_runs_per_second = models.IntegerField(default=5_000, validators=[MinValueValidator(1)])
    ownership_epoch = models.BigIntegerField(default=0)  # as last seen in the ownership store
    sealed_key = models.BinaryField()  # signing key, sealed with the installation key
    created_at = models.DateTimeField(db_default=Now())
    # What the last look found; for people, nothing is decided by it.
    status = models.JSONField(null=True, blank=True)
    status_at = models.DateTimeField(null=True, blank=True)
    status_error = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=CellState.values), name="cell_state_is_known"),
            models.CheckConstraint(condition=Q(kind__in=CellKind.values), name="cell_kind_is_known"),
            models.CheckConstraint(condition=Q(capacity_runs_per_second__gte=1), name="cell_has_capacity"),
        ]

    def __str__(self) -> str:
        return self.name


class Site(models.Model):
    """A cell's presence in one region: where its API answers, and which engines it has there."""

    cell = models.ForeignKey(Cell, on_delete=models.CASCADE, related_name="sites")
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="sites")
    url = models.CharField(max_length=200)  # checked where cells are registered
    primary = models.BooleanField(default=True)  # where the cell's owner is
    # Where its keeper answers; empty: the cell has no keepers, and its owner never changes.
    keeper_url = models.CharField(max_length=200, blank=True, default="", db_default="")
    # Its engines: host, port and name for people; whole addresses sealed (cell_keys.py). Empty: not told.
    database = models.CharField(max_length=300, blank=True, default="", db_default="")
    valkey = models.CharField(max_length=300, blank=True, default="", db_default="")
    sealed_database_url = models.BinaryField(null=True, blank=True)
    sealed_valkey_url = models.BinaryField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    ready_at = models.DateTimeField(null=True, blank=True)  # when it was first found ready
    # What the last look found, as for cells; of a site that is not primary, how far it is behind.
    status = models.JSONField(null=True, blank=True)
    status_at = models.DateTimeField(null=True, blank=True)
    status_error = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cell", "region"], name="site_once_per_region"),
            models.UniqueConstraint(fields=["cell"], condition=Q(primary=True), name="site_one_primary"),
        ]

    def __str__(self) -> str:
        return f"{self.cell_id} in {self.region_id}"


class PlacementState(models.TextChoices):
    """What a placement is in."""

    ACTIVE = "ACTIVE"  # the tenant lives there
    MOVING = "MOVING"  # a move is under way; still acts from there


class Placement(models.Model):
    """Where a tenant lives. The ownership store's row decides; this is our copy of it."""

    tenant = models.OneToOneField(
        "tenants.Tenant", on_delete=models.CASCADE, primary_key=True, related_name="placement"
    )
    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="placements")
    epoch = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=PlacementState.choices, default=PlacementState.ACTIVE)
    why = models.TextField(blank=True)  # the chooser's explanation
    # What it was chosen from: `chooser.Choice.told()`; empty for placements older than it.
    explanation = models.JSONField(default=dict, db_default=Value({}, models.JSONField()))
    placed_at = models.DateTimeField(db_default=Now())
    # The tenant's version the cell last confirmed; behind `tenant.version` while a push is due.
    confirmed_version = models.BigIntegerField(default=0)
    confirmed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(epoch__gte=1), name="placement_has_an_epoch"),
            models.CheckConstraint(
                condition=Q(state__in=PlacementState.values), name="placement_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} on {self.cell_id}"


class Tenure(models.Model):
    """One stay of a tenant on a cell under one epoch: the history meters are checked against. It outlives its
    tenant: months in which that lived are closed and billed when it is gone."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.DO_NOTHING, db_constraint=False, related_name="tenures"
    )
    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="tenures")
    epoch = models.BigIntegerField()
    since = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(null=True, blank=True)  # null: still there

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "epoch"], name="tenure_once_per_epoch"),
            models.UniqueConstraint(fields=["tenant"], condition=Q(until=None), name="tenure_one_open"),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gte=F("since")), name="tenure_ends_after_it_began"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} on {self.cell_id} since {self.since}"


class RelocationKind(models.TextChoices):
    """What many moves are made for."""

    DRAIN = "DRAIN"  # every tenant leaves the cell
    FILL = "FILL"  # tenants come to the cell from fuller ones, until it holds its share


class RelocationState(models.TextChoices):
    """How far a relocation is."""

    RUNNING = "RUNNING"  # begins moves
    PAUSED = "PAUSED"  # begins none; those under way go on
    DONE = "DONE"  # nobody is left to move
    STOPPED = "STOPPED"  # ended by an operator


class Relocation(models.Model):
    """Many tenants moved from a cell, or to one, a few at a time. The moves are the truth of who is where;
    this row says that they go on."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cell = models.ForeignKey(Cell, on_delete=models.PROTECT, related_name="relocations")
    kind = models.CharField(max_length=8, choices=RelocationKind.choices)
    state = models.CharField(
        max_length=8, choices=RelocationState.choices, default=RelocationState.RUNNING.value
    )
    at_once = models.IntegerField(default=1, validators=[MinValueValidator(1)])  # moves at the same time
    total = models.IntegerField(default=0)  # tenants to move, as it began
    why = models.TextField(blank=True)  # one line: what it does, or what it waits for
    stuck = models.JSONField(default=dict)  # tenant (TypeID) -> why it fits nowhere, or why its move ended
    started_by = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cell"], condition=Q(state__in=["RUNNING", "PAUSED"]), name="relocation_one_open"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=RelocationKind.values), name="relocation_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=RelocationState.values), name="relocation_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(at_once__gte=1, at_once__lte=20), name="relocation_pace_is_sane"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.cell_id}"

    @property
    def public_id(self) -> str:
        return encode(RELOCATION, self.id)
