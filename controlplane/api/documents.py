"""What the API shows. Serializers, so that the OpenAPI document says the same."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.events.models import AuditEvent
from controlplane.tenants.models import ApiKey, Membership, Quota, Tenant
from controlplane.topology.models import Cell, Placement, Region
from controlplane.topology.use import live_use

Document = serializers.Serializer[Any]


class QuotaDocument(serializers.ModelSerializer[Quota]):
    class Meta:
        model = Quota
        fields = Quota.NAMES


class PlacementDocument(Document):
    """Where the tenant lives. `confirmed`: the cell knows the newest settings."""

    cell = serializers.CharField(source="cell_id")
    region = serializers.CharField(source="cell.region_id")
    epoch = serializers.IntegerField()
    state = serializers.CharField()
    placed_at = serializers.DateTimeField()
    confirmed = serializers.SerializerMethodField()

    def get_confirmed(self, placement: Placement) -> bool:
        return placement.confirmed_version >= placement.tenant.version


class TenantDocument(Document):
    tenant_id = serializers.CharField(source="public_id")
    slug = serializers.CharField()
    name = serializers.CharField()
    state = serializers.CharField()
    home_region = serializers.CharField(source="home_region_id")
    default_region_policy = serializers.CharField()
    default_window_seconds = serializers.IntegerField()
    default_once_window_seconds = serializers.IntegerField()
    compensation_deadline_seconds = serializers.IntegerField()
    quotas = QuotaDocument(source="quota")
    placement = PlacementDocument()
    paused_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class QuotaUseDocument(Document):
    """What is used of a quota. `used` is null where that cannot be known now; `at_least`: more is used
    than was counted; `share` is in percent, at most 100; `measured` says over what."""

    name = serializers.CharField()
    quota = serializers.IntegerField()
    used = serializers.FloatField(allow_null=True)
    at_least = serializers.BooleanField()
    share = serializers.FloatField(allow_null=True)
    measured = serializers.CharField()
    unknown_since = serializers.DateTimeField(allow_null=True)
    over = serializers.ChoiceField(["DELAYED", "REFUSED"], help_text="What happens to work beyond it.")
    over_means = serializers.CharField()
    enforced_by = serializers.CharField()


class QuotasDocument(Document):
    """Every quota with its live use. `unknown`: why some of that is null; null where all is known."""

    items = QuotaUseDocument(many=True)
    unknown = serializers.CharField(allow_null=True)


class LiveTenantDocument(TenantDocument):
    """A tenant with what it uses of each quota. `usage_unknown` says why some of that is null."""

    usage = serializers.SerializerMethodField()
    usage_unknown = serializers.SerializerMethodField()

    @extend_schema_field(QuotaUseDocument(many=True))
    def get_usage(self, tenant: Tenant) -> list[dict[str, Any]]:
        return [dict(QuotaUseDocument(use).data) for use in self.context["usage"]]

    def get_usage_unknown(self, tenant: Tenant) -> str | None:
        return self.context["away"] or None


class OperatorPlacementDocument(PlacementDocument):
    """The same for operators, with the chooser's reasons."""

    tenant_id = serializers.CharField(source="tenant.public_id")
    why = serializers.CharField()
    explanation = serializers.JSONField(
        help_text="What it was chosen from: cells with what they had left, those refused and why, N+1."
    )
    confirmed_version = serializers.IntegerField()
    confirmed_at = serializers.DateTimeField(allow_null=True)


class MemberDocument(Document):
    member_id = serializers.CharField(source="public_id")
    user_id = serializers.CharField(source="user.public_id")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.CharField()
    may_see_payloads = serializers.BooleanField()
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class ApiKeyDocument(Document):
    """A key without its secret. `state`: LIVE, ROTATED (live until it expires), EXPIRED, REVOKED."""

    key_id = serializers.CharField(source="id")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    state = serializers.SerializerMethodField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    successor = serializers.CharField(source="successor_id", allow_null=True)

    def get_state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "REVOKED"
        if key.expires_at is not None and key.expires_at <= timezone.now():
            return "EXPIRED"
        return "ROTATED" if key.successor_id else "LIVE"


class IssuedKeyDocument(ApiKeyDocument):
    """A new key; `api_key` is shown this once."""

    api_key = serializers.CharField()


class AuditDocument(Document):
    event_id = serializers.CharField(source="public_id")
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    source = serializers.CharField()
    action = serializers.CharField()
    subject = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()


class RegionDocument(serializers.ModelSerializer[Region]):
    class Meta:
        model = Region
        fields = ("name", "label", "created_at")


class CellDocument(Document):
    """A cell. `url` is of its primary site; its signing key is never shown."""

    name = serializers.CharField()
    region = serializers.CharField(source="region_id")
    kind = serializers.CharField()
    state = serializers.CharField()
    capacity_runs_per_second = serializers.IntegerField()
    ownership_epoch = serializers.IntegerField()
    url = serializers.SerializerMethodField()
    tenants = serializers.SerializerMethodField()
    promised_runs_per_second = serializers.SerializerMethodField()
    status = serializers.JSONField()
    status_at = serializers.DateTimeField(allow_null=True)
    status_error = serializers.CharField()
    created_at = serializers.DateTimeField()

    def get_url(self, cell: Cell) -> str | None:
        return next((s.url for s in cell.sites.all() if s.primary), None)

    def get_tenants(self, cell: Cell) -> int:
        return int(getattr(cell, "tenant_count", 0))

    def get_promised_runs_per_second(self, cell: Cell) -> int:
        return int(getattr(cell, "promised", None) or 0)


class NPlusOneDocument(Document):
    """Whether a region can lose any one of its shared cells: the hardest to lose, the runs a second promised
    on it, and the room that the others have for them."""

    holds = serializers.BooleanField()
    cell = serializers.CharField()
    promised = serializers.IntegerField()
    room = serializers.IntegerField()


class ChoiceDocument(Document):
    """Which cell a tenant would get, and why not the others."""

    cell = serializers.CharField(allow_null=True)
    why = serializers.CharField()
    refused = serializers.DictField(child=serializers.CharField())
    left = serializers.DictField(
        child=serializers.IntegerField(), help_text="Of cells that fit: promises left afterwards, runs/s."
    )
    n_plus_one = NPlusOneDocument(
        allow_null=True, help_text="The hardest loss of a cell with it; null in a region of one shared cell."
    )
    overridden = serializers.BooleanField()


def show_tenant(tenant: Tenant) -> dict[str, Any]:
    return dict(TenantDocument(tenant).data)


def show_live_tenant(tenant: Tenant) -> dict[str, Any]:
    usage, away = live_use(tenant)
    return dict(LiveTenantDocument(tenant, context={"usage": usage, "away": away}).data)


def show_quotas(tenant: Tenant) -> dict[str, Any]:
    usage, away = live_use(tenant)
    return dict(QuotasDocument({"items": usage, "unknown": away or None}).data)


def show_member(member: Membership) -> dict[str, Any]:
    return dict(MemberDocument(member).data)


def show_key(key: ApiKey) -> dict[str, Any]:
    return dict(ApiKeyDocument(key).data)


def show_event(event: AuditEvent) -> dict[str, Any]:
    return dict(AuditDocument(event).data)


def page_of(document: type[Document]) -> type[Document]:
    """The schema of a list."""
    name = document.__name__.removesuffix("Document") + "PageDocument"
    return type(
        name,
        (serializers.Serializer,),
        {
            "items": document(many=True),
            "next_cursor": serializers.CharField(allow_null=True),
        },
    )
