"""Exports of a workspace's usage, invoice lines and FOCUS data: asking, watching, fetching, scheduling."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any

from django.conf import settings
from django.http import FileResponse, Http404, HttpResponse
from django.shortcuts import redirect

from billing.exports import requesting
from billing.exports.machine import Cadence, Dataset, ExportState, Format
from billing.exports.models import Export, ExportSchedule
from billing.ids import EXPORT, decode
from cells.contract import Scope
from controlplane.api.downloads import download
from controlplane.console.acting import Form, ask, done, first_use, not_done, not_used
from controlplane.console.lists import PAGE, asked, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Fault, Invalid, NotFound, Refused
from controlplane.refusals import of_billing

#: state → (word, look, sign)
WORDS = {
    ExportState.REQUESTED: ("Waiting", "wait", "◔"),
    ExportState.RUNNING: ("Being written", "wait", "◔"),
    ExportState.DONE: ("Done", "good", "●"),
    ExportState.FAILED: ("Failed", "bad", "✕"),
    ExportState.EXPIRED: ("Expired", "mute", "—"),
}
#: data set → (its name, what is in it, whether it comes in whole months)
DATASETS = {
    Dataset.FOCUS: ("FOCUS 1.2", "cost and usage by the hour, as FinOps tools read it", True),
    Dataset.USAGE: ("Usage", "each hour’s usage by metric, region policy and cell", False),
    Dataset.INVOICE_LINES: ("Invoice lines", "lines of numbered invoices", True),
}
CADENCES = {
    Cadence.DAILY: "every day: the day before, or the month so far",
    Cadence.MONTHLY: "every month: the one before, once it is closed and invoiced",
}
FORMATS = {Format.CSV: "CSV", Format.PARQUET: "Parquet, with exact decimals"}
_FIELDS = ("dataset", "format", "from", "to")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An export as pages show it."""

    export: Export

    @property
    def id(self) -> str:
        return self.export.public_id

    @property
    def state(self) -> ExportState:
        return ExportState(self.export.state)

    @property
    def under_way(self) -> bool:
        return self.state in (ExportState.REQUESTED, ExportState.RUNNING)

    @property
    def is_done(self) -> bool:
        return self.state is ExportState.DONE

    @property
    def word(self) -> str:
        return WORDS[self.state][0]

    @property
    def look(self) -> str:
        return WORDS[self.state][1]

    @property
    def sign(self) -> str:
        return WORDS[self.state][2]

    @property
    def dataset(self) -> str:
        return DATASETS[Dataset(self.export.dataset)][0]

    @property
    def last(self) -> date:
        """Its last day; `until` is the day behind it."""
        return self.export.until - timedelta(days=1)

    @property
    def percent(self) -> int | None:
        """How much of it is written, as far as anybody knows."""
        expected = self.export.rows_expected
        return min(99, self.export.rows_done * 100 // expected) if self.under_way and expected else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """What is exported regularly."""

    dataset: str  # as the URL has it
    name: str
    format: str
    cadence: str
    version: int


def days_asked(values: Mapping[str, str]) -> dict[str, Any]:
    """The form as the use-case takes it. Raises `Invalid` with every fault."""
    faults, days = [], {}
    for name in ("from", "to"):
        try:
            days[name] = date.fromisoformat(values[name])
            days[name] + timedelta(days=1)
        except (ValueError, OverflowError):
            faults.append(Fault(pointer=f"/{name}", detail="a day: YYYY-MM-DD"))
    for name, known in (("dataset", list(Dataset)), ("format", list(Format))):
        if values[name] not in known:
            faults.append(Fault(pointer=f"/{name}", detail=f"one of {', '.join(known)}"))
    if faults:
        raise Invalid(faults)
    return {
        "dataset": Dataset(values["dataset"]),
        "file_format": Format(values["format"]),
        "since": days["from"],
        "until": days["to"] + timedelta(days=1),
    }


def usual_days(today: date) -> dict[str, str]:
    """The month before, as a beginning."""
    last = today.replace(day=1) - timedelta(days=1)
    return {
        "dataset": Dataset.FOCUS.value,
        "format": Format.CSV.value,
        "from": last.replace(day=1).isoformat(),
        "to": last.isoformat(),
    }


def scheduled(tenant_id: uuid.UUID | None) -> list[Scheduled]:
    """The schedules of a tenant, or of the operators."""
    return [
        Scheduled(
            dataset=row.dataset,
            name=DATASETS[Dataset(row.dataset)][0],
            format=FORMATS[Format(row.format)],
            cadence=CADENCES[Cadence(row.cadence)],
            version=row.version,
        )
        for row in ExportSchedule.objects.filter(tenant_id=tenant_id).order_by("dataset")
    ]


@tenant_page(Scope.USAGE_READ, "GET", "POST")
def export_list(visit: Visit) -> HttpResponse:
    """GET …/exports/?state=&cursor=; POST asks for one."""
    today = visit.now.astimezone(UTC).date()
    if visit.request.method == "GET":
        return _list(visit, Form(values={**usual_days(today), "token": uuid.uuid4().hex}))
    posted = visit.request.POST
    values = {name: posted.get(name, "").strip()[:40] for name in (*_FIELDS, "token")}
    values["reason"] = posted.get("reason", "").strip()[:200]
    if not first_use(visit.request, values["token"]):
        return redirect(visit.url("exports"))  # a second click: it is in the list
    try:
        given = days_asked(values)
        with of_billing():
            made = requesting.request_export(
                tenant_id=visit.tenant.id, about_tenant_id=visit.tenant.id, **given, today=today,
                actor=visit.actor, reason=values["reason"],
            )  # fmt: skip
    except Refused as refused:
        not_used(visit.request, values["token"])
        return _list(visit, Form.refused(values, refused, fields=_FIELDS), status=422)
    done(visit, "The export is asked for. Its files are here once it is done.")
    return redirect(visit.url("export", made.public_id))


def _list(visit: Visit, form: Form, status: int = 200) -> HttpResponse:
    filters = asked(visit, "state")
    rows = Export.objects.filter(tenant_id=visit.tenant.id)
    if filters.get("state") in list(ExportState):
        rows = rows.filter(state=filters["state"])
    if cursor := visit.request.GET.get("cursor", ""):
        rows = rows.filter(pk__lt=_uuid(cursor))
    found = list(rows.order_by("-id")[: PAGE + 1])
    more, found = len(found) > PAGE, found[:PAGE]
    return visit.page(
        "console/money/exports.html",
        status=status,
        section="usage",
        tab="exports",
        filters=filters,
        states=[(state.value, words[0].lower()) for state, words in WORDS.items()],
        exports=[Row(export=export) for export in found],
        next=next_page(visit, filters, found[-1].public_id if more else None),
        paged=bool(cursor),
        form=form,
        datasets=[(d.value, *words) for d, words in DATASETS.items()],
        formats=[(f.value, word) for f, word in FORMATS.items()],
        cadences=[(c.value, word) for c, word in CADENCES.items()],
        schedules=scheduled(visit.tenant.id),
        possible=bool(settings.BILLING_EXPORTS["url"]),
        kept_days=settings.BILLING_EXPORTS["kept_days"],
    )


def _uuid(text: str) -> uuid.UUID:
    found = decode(EXPORT, text)
    if found is None:
        raise Http404
    return found


def _export(visit: Visit, export_id: str) -> Export:
    found = Export.objects.filter(tenant_id=visit.tenant.id, pk=_uuid(export_id)).first()
    if found is None:
        raise Http404
    return found


@tenant_page(Scope.USAGE_READ)
def export(visit: Visit, export_id: str) -> HttpResponse:
    """GET …/exports/<id>/: how far it is; its files."""
    row = Row(export=_export(visit, export_id))
    return visit.page("console/money/export.html", section="usage", tab="exports", row=row)


@tenant_page(Scope.USAGE_READ)
def export_live(visit: Visit, export_id: str) -> HttpResponse:
    """GET …/exports/<id>/live: the part that changes until it is done."""
    return visit.page("console/money/export_live.html", row=Row(export=_export(visit, export_id)))


@tenant_page(Scope.USAGE_READ)
def export_file(visit: Visit, export_id: str, name: str) -> HttpResponse | FileResponse:
    """GET …/exports/<id>/files/<name>"""
    try:
        return download(_export(visit, export_id), name)
    except NotFound:
        raise Http404 from None
    except Refused as refused:
        not_done(visit, refused)
        return redirect(visit.url("export", export_id))


@tenant_page(Scope.ADMIN, "POST")
def export_schedule(visit: Visit) -> HttpResponse:
    """POST …/export-schedules: has a data set exported every day or month from now on."""
    posted = visit.request.POST
    try:
        wanted = Dataset(posted.get("dataset", "")), Format(posted.get("format", ""))
        cadence = Cadence(posted.get("cadence", ""))
    except ValueError:
        raise Http404 from None
    try:
        with of_billing():
            requesting.set_schedule(
                tenant_id=visit.tenant.id, dataset=wanted[0], file_format=wanted[1], cadence=cadence,
                actor=visit.actor, reason=posted.get("reason", "").strip()[:200],
            )  # fmt: skip
    except Refused as refused:
        not_done(visit, refused)
    else:
        done(visit, "{} is exported {}.", DATASETS[wanted[0]][0], CADENCES[cadence])
    return redirect(f"{visit.url('exports')}#schedules-title")


@tenant_page(Scope.ADMIN, "GET", "POST")
def export_schedule_remove(visit: Visit, dataset: str) -> HttpResponse:
    """GET says what ends; POST ends it."""
    row = next((each for each in scheduled(visit.tenant.id) if each.dataset == dataset), None)
    if row is None:
        return redirect(visit.url("exports"))
    if visit.request.method == "GET":
        return ask(
            visit,
            title=f"End the exports of {row.name}",
            points=[
                f"It is exported {row.cadence}, as {row.format}.",
                "No more is exported from now on. What was exported stays until it expires.",
            ],
            verb="End them", back=visit.url("exports"), keep="Keep them", section="usage",
        )  # fmt: skip
    try:
        with of_billing():
            requesting.remove_schedule(
                tenant_id=visit.tenant.id, dataset=Dataset(dataset), actor=visit.actor, reason=""
            )
    except Refused as refused:
        not_done(visit, refused)
    else:
        done(visit, "No more exports of {} are made by themselves.", row.name)
    return redirect(visit.url("exports"))
