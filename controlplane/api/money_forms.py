"""What the API takes about money. Amounts are text: a JSON number is no money."""

from __future__ import annotations

from rest_framework import serializers

from billing.charging.documents import MODELS, POLICIES
from cells.contract import Metric
from controlplane.api.base import ReasonMixin, Strict, Text
from controlplane.api.forms import TrueOrFalse, WholeNumber

_MOST_UNITS = 2**62


class Amount(serializers.RegexField):
    """A decimal from 0 with at most 10 digits behind the point, as text."""

    def __init__(self, **kwargs: object) -> None:
        kwargs.setdefault("help_text", "a decimal, as text")
        super().__init__(r"\A(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,10})?\Z", **kwargs)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class PriceTierForm(Strict):
    """`amount` for each `per` units, up to so many; the last tier has no end."""

    up_to = WholeNumber(required=False, allow_null=True, min_value=1, max_value=_MOST_UNITS, default=None)
    amount = Amount()
    per = WholeNumber(required=False, default=1, min_value=1, max_value=_MOST_UNITS)


class PriceForm(Strict):
    """A price: `unit` and `package` have an amount, `graduated` and `volume` have tiers."""

    metric = serializers.ChoiceField([m.value for m in Metric])
    region_policy = serializers.ChoiceField(POLICIES, required=False, default="*")
    model = serializers.ChoiceField(MODELS)
    included = WholeNumber(
        required=False, default=0, min_value=0, max_value=_MOST_UNITS, help_text="free units in a month"
    )
    amount = Amount(required=False)
    per = WholeNumber(required=False, min_value=1, max_value=_MOST_UNITS, help_text="unit: default 1")
    size = WholeNumber(required=False, min_value=1, max_value=_MOST_UNITS, help_text="package")
    tiers = PriceTierForm(many=True, required=False)


class NewPriceBook(ReasonMixin):
    name = Text(max_length=80)
    currency = Text(max_length=3)
    effective_from = serializers.DateField(help_text="the first UTC day it holds")
    prices = PriceForm(many=True)
    minimum = Amount(required=False, default="0", help_text="of a month, before taxes")
    note = Text(required=False, default="", allow_blank=True, max_length=2000)


class PreviewPriceBook(Strict):
    """A book that is not there, and the month to see it on (the last one if nothing is said)."""

    currency = Text(max_length=3)
    prices = PriceForm(many=True)
    minimum = Amount(required=False, default="0")
    month = Text(required=False, max_length=7, help_text="YYYY-MM")


class NewContract(ReasonMixin):
    tenant_id = Text(max_length=40)
    effective_from = serializers.DateField(help_text="the first UTC day it holds")
    effective_until = serializers.DateField(required=False, allow_null=True, default=None)
    prices = PriceForm(many=True, required=False, default=list)
    minimum = Amount(required=False, allow_null=True, default=None)
    note = Text(required=False, default="", allow_blank=True, max_length=2000)


class EndContract(ReasonMixin):
    effective_until = serializers.DateField(help_text="the first UTC day it no longer holds")


class TaxForm(Strict):
    name = Text(max_length=40)
    rate = Amount(help_text="0.19 for 19 %")


class EditBillingAccount(ReasonMixin):
    """A JSON merge patch."""

    currency = Text(required=False, max_length=3)
    legal_name = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, allow_blank=True, max_length=500)
    tax_id = Text(required=False, allow_blank=True, max_length=40)
    emails = serializers.ListField(child=serializers.EmailField(), required=False, max_length=10)
    taxes = TaxForm(many=True, required=False)


class DraftInvoice(ReasonMixin):
    tenant_id = Text(max_length=40)
    month = Text(max_length=7, help_text="YYYY-MM; must be closed")


class CreditLineForm(Strict):
    n = WholeNumber(min_value=1, max_value=2**31 - 1)
    amount = Amount(help_text="before taxes")


class CreditInvoice(ReasonMixin):
    """Without lines: all that is left."""

    lines = CreditLineForm(many=True, required=False, allow_null=True, default=None)


class SetBudget(ReasonMixin):
    amount = Amount(help_text="of a month, before taxes")
    capped = TrueOrFalse(required=False, default=False, help_text="LOW work waits once it is spent")
    grace_hours = WholeNumber(
        required=False, default=24, min_value=0, max_value=720, help_text="from 100 % until it waits"
    )


class ForecastSchedule(Strict):
    """Either a schedule, as of a job, or how often it happens in the 30 days to come."""

    schedule = serializers.DictField(required=False)
    occurrences = WholeNumber(required=False, min_value=0, max_value=10**9)
    region_policy = serializers.ChoiceField(POLICIES[1:], required=False)
    attempts_per_run = Amount(required=False, help_text="as observed of the tenant if nothing is said")
