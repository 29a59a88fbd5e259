"""What the API shows of evacuations, their plans, and sites with what may be asked of them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.api.documents import Document, NPlusOneDocument
from controlplane.evacuations.models import EvacuatedCell, Evacuation
from controlplane.evacuations.planning import Load, Plan
from controlplane.evacuations.wishing import WishPlan


class BeforeAfterDocument(Document):
    """A number before, and after."""

    before = serializers.IntegerField()
    after = serializers.IntegerField()


class LoadDocument(Document):
    """What a region carries before and after. Rates are runs a second; `n_plus_one_…` null: fewer than two
    shared cells in use."""

    region = serializers.CharField()
    cells = BeforeAfterDocument()
    promised = BeforeAfterDocument()
    capacity = BeforeAfterDocument()
    n_plus_one_before = NPlusOneDocument(allow_null=True)
    n_plus_one_afterwards = NPlusOneDocument(allow_null=True)


class EvacuationStepDocument(Document):
    """One cell of a plan. `target` null: it stays, and `why` says why; `nowhere`: it has no site elsewhere,
    and its tenants need moves; `dead`: its owner is silent."""

    cell = serializers.CharField()
    source = serializers.CharField()
    target = serializers.CharField(allow_null=True)
    why = serializers.CharField()
    tenants = serializers.IntegerField()
    job_runs_per_second = serializers.IntegerField()
    behind_bytes = serializers.IntegerField(allow_null=True)
    dead = serializers.BooleanField()
    moves_to_stop = serializers.IntegerField()
    moves_to_wait_for = serializers.IntegerField()
    nowhere = serializers.BooleanField()


class EvacuationPlanDocument(Document):
    """An evacuation as it would begin. `impossible`: why nothing can be begun; `refusal`: why it takes an
    override."""

    region = serializers.CharField()
    kind = serializers.CharField()
    steps = EvacuationStepDocument(many=True)
    loads = LoadDocument(many=True)
    refusal = serializers.CharField(allow_null=True)
    impossible = serializers.CharField(allow_null=True)


class CellStepDocument(Document):
    """A stay of a cell in a state. `event`: what ended it."""

    state = serializers.CharField()
    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    event = serializers.CharField()
    why = serializers.CharField()


class EvacuatedCellDocument(Document):
    """A cell on its way. `loss`: what a takeover from a silent owner left behind; null where nothing."""

    cell = serializers.CharField(source="cell_id")
    source = serializers.CharField()
    target = serializers.CharField()
    state = serializers.CharField()
    why = serializers.CharField()
    returning = serializers.BooleanField()
    lifts = serializers.IntegerField()
    progress = serializers.JSONField()
    loss = serializers.SerializerMethodField()
    handed_over_ms = serializers.SerializerMethodField()
    new_epoch = serializers.IntegerField(allow_null=True)
    began_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    steps = serializers.SerializerMethodField()

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_loss(self, row: EvacuatedCell) -> dict[str, Any] | None:
        return row.facts.get("loss")

    def get_handed_over_ms(self, row: EvacuatedCell) -> int | None:
        return row.facts.get("handed_over_ms")

    @extend_schema_field(CellStepDocument(many=True))
    def get_steps(self, row: EvacuatedCell) -> list[dict[str, Any]]:
        return [dict(CellStepDocument(step).data) for step in row.steps.order_by("id")]


class EvacuationDocument(Document):
    """A region that is left (EVACUATE) or come back to (FAIL_BACK). `why`: what it does, or waits for."""

    evacuation_id = serializers.CharField(source="public_id")
    region = serializers.CharField(source="region_id")
    kind = serializers.CharField()
    state = serializers.CharField()
    why = serializers.CharField()
    at_once = serializers.IntegerField()
    calm_lag_ms = serializers.IntegerField()
    calm_seconds = serializers.IntegerField()
    hand_back = serializers.BooleanField()
    started_by = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class OneEvacuationDocument(EvacuationDocument):
    """An evacuation with its cells, and the plan it was begun with."""

    cells = serializers.SerializerMethodField()
    plan = serializers.JSONField()

    @extend_schema_field(EvacuatedCellDocument(many=True))
    def get_cells(self, found: Evacuation) -> list[dict[str, Any]]:
        return [dict(EvacuatedCellDocument(row).data) for row in found.cells.order_by("position")]


class SiteStatusDocument(Document):
    """A cell's site as its keeper tells of it now. `away`: why it could not be asked. `behind_bytes`: what it
    has not flushed of the owner's log; null where that is not known."""

    region = serializers.CharField()
    keeper_url = serializers.CharField()
    owner = serializers.BooleanField()
    away = serializers.CharField()
    act = serializers.CharField()
    why = serializers.CharField()
    epoch = serializers.IntegerField()
    owns = serializers.BooleanField()
    ready = serializers.BooleanField()
    streaming = serializers.BooleanField()
    behind_bytes = serializers.IntegerField(allow_null=True)


class SiteStatusesDocument(Document):
    """All sites of a cell."""

    items = SiteStatusDocument(many=True)


class WishPlanDocument(Document):
    """What would become of a wish. `confirmation`: what has to be sent as `confirm`, where something can be
    lost (`loses`)."""

    cell = serializers.CharField()
    region = serializers.CharField()
    verb = serializers.CharField()
    epoch = serializers.IntegerField()
    owner = serializers.CharField()
    says = serializers.CharField()
    loses = serializers.CharField()
    tenants = serializers.IntegerField()
    behind_bytes = serializers.IntegerField(allow_null=True)
    refusal = serializers.CharField(allow_null=True)
    confirmation = serializers.CharField()
    loads = LoadDocument(many=True)


class WishAnswerDocument(Document):
    """What the site's keeper said; it acts in its next round."""

    said = serializers.CharField()


def show_load(load: Load) -> dict[str, Any]:
    """A load as the API shows it."""
    pairs = {
        name: dict(zip(("before", "after"), getattr(load, name), strict=True))
        for name in ("cells", "promised", "capacity")
    }
    before, afterwards = load.n_plus_one
    return {
        "region": load.region,
        **pairs,
        "n_plus_one_before": before,
        "n_plus_one_afterwards": afterwards,
    }


def show_plan(plan: Plan) -> dict[str, Any]:
    """A plan as the API shows it."""
    told = plan.told()
    loads = [show_load(load) for load in plan.loads]
    return dict(
        EvacuationPlanDocument({**told, "region": plan.region, "kind": plan.kind, "loads": loads}).data
    )


def show_wish_plan(plan: WishPlan) -> dict[str, Any]:
    """The same of a wish."""
    names = [name for name in WishPlanDocument().fields if name != "loads"]
    values = {name: getattr(plan, name) for name in names}
    return dict(WishPlanDocument({**values, "loads": [show_load(load) for load in plan.loads]}).data)


def show_evacuation(found: Evacuation) -> dict[str, Any]:
    return dict(EvacuationDocument(found).data)
