"""Where tenants can live, and where they do."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

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
    """A cell's presence in one region: where its API answers."""

    cell = models.ForeignKey(Cell, on_delete=models.CASCADE, related_name="sites")
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="sites")
    url = models.CharField(max_length=200)  # checked where cells are registered
    primary = models.BooleanField(default=True)  # where the cell's owner is

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
    """One stay of a tenant on a cell under one epoch: the history meters are checked against."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="tenures")
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
