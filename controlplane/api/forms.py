"""What the API takes. Strict: unknown fields are faults."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from rest_framework import serializers

from controlplane.api.base import ReasonMixin, Strict, Text
from controlplane.tenants.actions.tenants import LONGEST_DEADLINE_SECONDS
from controlplane.tenants.models import Quota
from controlplane.tenants.roles import Role
from controlplane.topology.models import CellKind

_OVERRIDE = "promise it even where the region could then not lose a cell; it is in the audit log"
_POLICY = ("HOME_ASYNC", "STRICT", "SINGLE_REGION")


class WholeNumber(serializers.IntegerField):
    """A JSON number without a fraction; no text that looks like one."""

    def to_internal_value(self, data: object) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class TrueOrFalse(serializers.BooleanField):
    """A JSON boolean; no text that looks like one."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return bool(data)


class QuotasForm(Strict):
    """All optional: what is left out stays."""


for _name in Quota.NAMES:
    QuotasForm._declared_fields[_name] = WholeNumber(required=False, min_value=0)


class EditTenant(ReasonMixin):
    """A JSON merge patch."""

    name = Text(required=False, max_length=120)
    default_region_policy = serializers.ChoiceField(_POLICY, required=False)
    default_window_seconds = WholeNumber(
        required=False, validators=[MinValueValidator(1), MaxValueValidator(86_400)]
    )
    default_once_window_seconds = WholeNumber(
        required=False, validators=[MinValueValidator(1), MaxValueValidator(86_400)]
    )
    compensation_deadline_seconds = WholeNumber(
        required=False,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST_DEADLINE_SECONDS)],
        help_text="How long a workflow may undo what it did before it needs a person.",
    )


class NewTenant(ReasonMixin):
    slug = Text(max_length=48)
    name = Text(max_length=120)
    home_region = Text(required=False, help_text="needed where there is more than one")
    default_region_policy = serializers.ChoiceField(_POLICY, required=False, default="HOME_ASYNC")
    dedicated = TrueOrFalse(required=False, default=False)
    cell = Text(required=False, help_text="a cell of the home region that has room")
    quotas = QuotasForm(required=False)
    override = TrueOrFalse(required=False, default=False, help_text=_OVERRIDE)
    owner_email = serializers.EmailField(required=False, help_text="becomes the first owner")


class SetQuotas(ReasonMixin):
    quotas = QuotasForm()
    override = TrueOrFalse(required=False, default=False, help_text=_OVERRIDE)


class Because(ReasonMixin):
    """A body that may only say why."""


class NewMember(ReasonMixin):
    email = serializers.EmailField()
    name = Text(required=False, default="", allow_blank=True, max_length=120)
    role = serializers.ChoiceField(Role.choices)
    may_see_payloads = TrueOrFalse(required=False, default=False)


class EditMember(ReasonMixin):
    role = serializers.ChoiceField(Role.choices, required=False)
    may_see_payloads = TrueOrFalse(required=False)


class NewApiKey(ReasonMixin):
    name = Text(max_length=120)
    scopes = serializers.ListField(child=Text(max_length=32), max_length=32)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)


class RotateApiKey(ReasonMixin):
    grace_seconds = WholeNumber(
        required=False,
        default=86_400,
        min_value=0,
        max_value=30 * 86_400,
        help_text="how long the old key goes on",
    )


class NewRegion(ReasonMixin):
    name = Text(max_length=63)
    label = Text(required=False, default="", allow_blank=True, max_length=120)


class NewCell(ReasonMixin):
    name = Text(max_length=63)
    region = Text(max_length=63)
    url = Text(max_length=200)
    key_hex = serializers.RegexField(r"\A(?:[0-9a-fA-F]{2}){32,64}\Z", help_text="signing key")
    kind = serializers.ChoiceField(CellKind.choices, required=False, default=CellKind.SHARED)
    capacity_runs_per_second = WholeNumber(
        required=False, min_value=1, help_text="left out: as it is; of a new cell 5,000"
    )


class WouldPlace(Strict):
    """A wish, to see where it would go. Nothing is placed."""

    region = Text(max_length=63)
    job_runs_per_second = WholeNumber(min_value=1)
    dedicated = TrueOrFalse(required=False, default=False)
