"""Price books: all versions, and a new one, whose effect on last month's bills is seen before it is saved."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from billing.charging.documents import MODELS, POLICIES, price_of
from billing.charging.money import quantize
from billing.ids import BOOK, decode
from billing.pricing import books, terms
from billing.pricing.models import ChargeBook
from billing.pricing.preview import Preview, preview
from controlplane.adminsite import operator
from controlplane.console.cost import price_words
from controlplane.errors import Invalid, Refused
from controlplane.operators.meters import slugs_of
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.price_form import (
    Typed,
    amount_of,
    day_of,
    faults_in_words,
    prices_of,
    rows_of,
    rows_typed,
    seal_of,
)
from controlplane.refusals import of_billing

_FIELDS = ("name", "currency", "effective_from", "minimum", "note", "reason")
_PAGE = 20
METRICS = tuple(terms.METRICS)


def today() -> date:
    """The UTC day."""
    return timezone.now().astimezone(UTC).date()


def in_words(prices: Sequence[Any], currency: str) -> list[dict[str, Any]]:
    """Stored prices as people read them."""
    return [
        {
            "metric": price["metric"].replace("_", " "),
            "policy": price["region_policy"],
            "parts": price_words(price_of(price), currency),
        }
        for price in prices
    ]


@operator_page()
def price_list(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/prices/?after=: all versions, newest first."""
    rows = ChargeBook.objects.order_by("-effective_from", "-id")
    if after := request.GET.get("after", ""):
        last = ChargeBook.objects.filter(pk=_uuid(after)).first()
        if last is None:
            raise Http404
        rows = rows.filter(effective_from__lte=last.effective_from).exclude(pk=last.pk).exclude(
            effective_from=last.effective_from, pk__gt=last.pk
        )  # fmt: skip
    found = list(rows[: _PAGE + 1])
    more, found = len(found) > _PAGE, found[:_PAGE]
    day = today()
    begun = ChargeBook.objects.filter(effective_from__lte=day)
    current = set(
        begun.order_by("currency", "-effective_from").distinct("currency").values_list("pk", flat=True)
    )
    return page(
        request,
        "prices.html",
        "Price books",
        books=[
            {
                "book": book,
                "prices": in_words(book.prices, book.currency),
                "state": "ahead"
                if book.effective_from > day
                else ("in force" if book.pk in current else "past"),
            }
            for book in found
        ],
        after=found[-1].public_id if more else None,
    )


def _uuid(text: str) -> uuid.UUID:
    found = decode(BOOK, text)
    if found is None:
        raise Http404
    return found


@operator_page("GET", "POST")
def price_new(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/prices/new?from=<book>; POST shows the effect, or saves what was looked at."""
    if request.method == "GET":
        return _form(request, _prefilled(request))
    typed = Typed(
        values={name: request.POST.get(name, "").strip()[:2_000] for name in _FIELDS},
        rows=rows_typed(request.POST.dict()),
    )
    effect: Preview | None = None
    seal = ""
    try:
        prices = prices_of(typed.rows)
        minimum = amount_of(typed.values["minimum"], "/minimum")
        begins = day_of(typed.values["effective_from"], "/effective_from")
        said = {"currency": typed.values["currency"], "prices": prices, "minimum": minimum}
        seal = seal_of(said, begins)
        with of_billing():
            drafted = books.drafted(name=typed.values["name"], effective_from=begins, **said)
            if request.POST.get("verb") == "save" and request.POST.get("previewed") == seal:
                if not typed.values["reason"]:
                    raise Invalid([])
                made = books.create_book(
                    name=typed.values["name"], effective_from=begins, note=typed.values["note"],
                    today=today(), actor=operator(request), reason=typed.values["reason"], **said,
                )  # fmt: skip
                messages.success(request, f"{made.name} is saved: it holds from {made.effective_from} on.")
                return redirect("operators:prices")
            effect = preview(drafted, (today().replace(day=1) - timedelta(days=1)).replace(day=1))
    except Invalid as refused:
        typed.faults = faults_in_words(refused, typed.rows) or ["Say why, for the audit log."]
        return _form(request, typed, status=422, effect=effect, seal=seal)
    except Refused as refused:
        typed.faults = [str(refused)]
        return _form(request, typed, status=409)
    if request.POST.get("verb") == "save":
        messages.info(request, "Nothing is saved yet: this is the effect of the prices as they stand now.")
    return _form(request, typed, effect=effect, seal=seal)


def _prefilled(request: HttpRequest) -> Typed:
    """The newest version, or the one asked for, as a beginning."""
    given = request.GET.get("from", "")
    row = ChargeBook.objects.order_by("-effective_from", "-id").first()
    if given:
        row = ChargeBook.objects.filter(pk=_uuid(given)).first()
        if row is None:
            raise Http404
    first = (today().replace(day=1) + timedelta(days=32)).replace(day=1)
    values = {"name": "", "currency": "USD", "minimum": "0", "note": "", "reason": ""}
    if row is not None:
        values |= {"currency": row.currency, "minimum": f"{quantize(row.minimum, row.currency):f}"}
    return Typed(
        values={**values, "effective_from": first.isoformat()}, rows=rows_of(row.prices if row else ())
    )


def _form(
    request: HttpRequest, typed: Typed, *, status: int = 200, effect: Preview | None = None, seal: str = ""
) -> HttpResponse:
    return page(
        request,
        "price_new.html",
        "New price book",
        status=status,
        typed=typed,
        metrics=METRICS,
        policies=POLICIES,
        models=MODELS,
        effect=None if effect is None else shown_effect(effect),
        seal=seal,
    )


def shown_effect(effect: Preview) -> dict[str, Any]:
    """A preview as pages show it."""
    slugs = slugs_of(change.tenant_id for change in effect.changes)
    return {
        "month": effect.month,
        "currency": effect.currency,
        "tenants": effect.tenants,
        "more": effect.more,
        "less": effect.less,
        "before": f"{effect.before:,}",
        "after": f"{effect.after:,}",
        "difference": f"{effect.after - effect.before:+,}",
        "changes": [
            {
                "slug": slugs.get(change.tenant_id, ""),
                "before": f"{change.before:,}",
                "after": f"{change.after:,}",
                "difference": f"{change.after - change.before:+,}",
                "more": change.after > change.before,
            }
            for change in effect.changes
        ],
    }


@operator_page("POST")
def price_withdraw(request: HttpRequest, book_id: str) -> HttpResponse:
    """POST /admin/pages/prices/<id>/withdraw: only before its day."""
    reason = request.POST.get("reason", "").strip()[:300]
    if not reason:
        messages.error(request, "Nothing was changed: say why, for the audit log.")
    else:
        act(
            request, books.withdraw_book, "The version is withdrawn.",
            book_id=_uuid(book_id), today=today(), reason=reason,
        )  # fmt: skip
    return redirect("operators:prices")
