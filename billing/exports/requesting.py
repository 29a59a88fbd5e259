"""Asking for exports, scheduling them, and being done with them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from billing.exports.machine import Cadence, Dataset, ExportState, Format
from billing.exports.models import Export, ExportSchedule
from billing.exports.places import SCRATCH, Retryable, check_url, folder_of, open_place, sweep, usual_place
from billing.hooks import BILLING, Actor, audit, is_going
from billing.months import DAY, month_of, next_month
from billing.refusals import Conflicting, NotFound, VersionMismatch, refuse_faults
from billing.sql import named_sql

_SQL = named_sql("exports")
_LOG = structlog.get_logger(__name__)
#: Days an export may span; exports of one owner that may wait at once.
MOST_DAYS, MOST_WAITING = 400, 20
#: Seconds that nothing was written to a scratch folder that is nobody's any more.
_SCRATCH_KEPT = 86_400
#: What comes in whole months: an invoice is of one.
OF_MONTHS = frozenset({Dataset.FOCUS, Dataset.INVOICE_LINES})


def faults_of(*, dataset: Dataset, since: date, until: date, today: date) -> list[tuple[str, str]]:
    """What is wrong with the days [since, until) of an export, as pointers to `from` and `to`."""
    found = []
    last = until - DAY
    if since > last:
        return [("/from", "lies behind `to`")]
    if (until - since).days > MOST_DAYS:
        found.append(("/from", f"an export spans at most {MOST_DAYS} days"))
    if since > today:
        found.append(("/from", f"lies ahead: today is {today.isoformat()}"))
    if dataset in OF_MONTHS:
        if since.day != 1:
            found.append(("/from", f"{dataset} comes in whole months: the first day of one"))
        if until.day != 1:
            found.append(("/to", f"{dataset} comes in whole months: the last day of one"))
    return found


@transaction.atomic
def request_export(
    *,
    tenant_id: uuid.UUID | None,
    about_tenant_id: uuid.UUID | None,
    dataset: Dataset,
    file_format: Format,
    since: date,
    until: date,
    today: date,
    place: str | None = None,
    cadence: Cadence | None = None,
    actor: Actor,
    reason: str,
) -> Export:
    """Asks for the half-open days [since, until) of a tenant's data, or of everybody's (`about_tenant_id`
    None, for operators: `tenant_id` None). `place`: another than the installation's own. It is begun once
    this commits."""
    faults = faults_of(dataset=dataset, since=since, until=until, today=today)
    if place is not None:
        try:
            check_url(place)
        except ValueError as e:
            faults.append(("/destination", str(e)))
    refuse_faults(faults)
    if tenant_id is not None and about_tenant_id != tenant_id:
        raise NotFound("no such tenant")
    if about_tenant_id is not None and is_going(about_tenant_id):
        raise Conflicting("the tenant is being erased: nothing of it is exported any more")
    waiting = Export.objects.filter(
        tenant_id=tenant_id, state__in=[ExportState.REQUESTED, ExportState.RUNNING]
    ).count()
    if waiting >= MOST_WAITING:
        raise Conflicting(f"{waiting} exports are under way already; wait for one of them")
    made = Export.objects.create(
        tenant_id=tenant_id,
        about_tenant_id=about_tenant_id,
        dataset=dataset,
        format=file_format,
        since=since,
        until=until,
        place=place or usual_place(),
        cadence=cadence or "",
        requested_by=actor.name,
    )
    made.refresh_from_db()
    audit(
        action="export.request", subject=made.public_id, tenant_id=about_tenant_id, actor=actor,
        reason=reason,
        after={"dataset": dataset, "format": file_format, "from": since.isoformat(),
               "to": (until - DAY).isoformat(), "destination": place},
    )  # fmt: skip
    transaction.on_commit(partial(_wake, made.id))
    return made


def _wake(export_id: uuid.UUID) -> None:
    from billing.exports.tasks import wake  # tasks import use-cases

    wake(export_id)


def find_export(export_id: uuid.UUID, *, tenant_id: uuid.UUID | None) -> Export:
    """An export of a tenant, or of the operators (None); of others there is none."""
    found = Export.objects.filter(pk=export_id, tenant_id=tenant_id).first()
    if found is None:
        raise NotFound("no such export")
    return found


# --- schedules ---------------------------------------------------------------------------
@transaction.atomic
def set_schedule(
    *,
    tenant_id: uuid.UUID | None,
    dataset: Dataset,
    file_format: Format,
    cadence: Cadence,
    expected_version: int | None = None,
    actor: Actor,
    reason: str,
) -> ExportSchedule:
    """Has a data set exported every day or month from now on. Saying the same again changes nothing."""
    usual_place()
    row = ExportSchedule.objects.select_for_update().filter(tenant_id=tenant_id, dataset=dataset).first()
    if expected_version not in (None, row.version if row else None):
        raise VersionMismatch(row.version if row else 0)
    before = None if row is None else {"format": row.format, "cadence": row.cadence}
    after = {"format": file_format.value, "cadence": cadence.value}
    if row is None:
        row = ExportSchedule.objects.create(tenant_id=tenant_id, dataset=dataset, **after)
    elif before != after:
        ExportSchedule.objects.filter(pk=row.pk).update(**after, version=F("version") + 1)
    else:
        return row
    row.refresh_from_db()
    audit(
        action="export_schedule.set", subject=dataset.value, tenant_id=tenant_id, actor=actor, reason=reason,
        before=before, after=after,
    )  # fmt: skip
    return row


@transaction.atomic
def remove_schedule(*, tenant_id: uuid.UUID | None, dataset: Dataset, actor: Actor, reason: str) -> None:
    """No more of them; what was exported stays until it expires."""
    row = ExportSchedule.objects.select_for_update().filter(tenant_id=tenant_id, dataset=dataset).first()
    if row is None:
        raise NotFound("no such schedule of exports")
    row.delete()
    audit(
        action="export_schedule.remove", subject=dataset.value, tenant_id=tenant_id, actor=actor,
        reason=reason,
        before={"format": row.format, "cadence": row.cadence},
    )  # fmt: skip


def period_due(schedule: ExportSchedule, now: datetime) -> tuple[date, date] | None:
    """The half-open days that a schedule wants next, once they are over for long enough; None: nothing yet.

    A day is waited for until 06:00 of the next; a month until it is closed, see `months_ready`.
    """
    settled = (now - timedelta(hours=6)).date()  # the day before it is over since six hours
    if schedule.cadence == Cadence.DAILY:
        since, until = settled - DAY, settled
        if Dataset(schedule.dataset) in OF_MONTHS:
            since, until = month_of(since), next_month(month_of(since))
            return (since, until) if settled > schedule.created_at.date() else None
    else:
        until = month_of(settled)
        since = month_of(until - DAY)
    return (since, until) if until > schedule.created_at.date() else None


def schedule_due(now: datetime) -> int:
    """Asks for every export that schedules want at an instant; how many. Asked again it asks for none."""
    made = 0
    for schedule in ExportSchedule.objects.order_by("id"):
        period = period_due(schedule, now)
        if period is None or not _ready(schedule, *period, now):
            continue
        try:
            with transaction.atomic():
                request_export(
                    tenant_id=schedule.tenant_id, about_tenant_id=schedule.tenant_id,
                    dataset=Dataset(schedule.dataset), file_format=Format(schedule.format),
                    since=period[0], until=period[1], today=now.date(), cadence=Cadence(schedule.cadence),
                    actor=BILLING, reason=f"scheduled, {schedule.cadence.lower()}",
                )  # fmt: skip
            made += 1
        except IntegrityError:
            continue  # somebody asked just now
        except Conflicting as refused:
            # One owner's full line keeps nobody else from theirs; the next look tries again.
            _LOG.warning("export not requested", tenant_id=str(schedule.tenant_id), error=str(refused))
    return made


def _ready(schedule: ExportSchedule, since: date, until: date, now: datetime) -> bool:
    mine = Export.objects.filter(
        tenant_id=schedule.tenant_id,
        dataset=schedule.dataset,
        format=schedule.format,
        since=since,
        until=until,
    ).exclude(cadence="")
    if schedule.cadence == Cadence.MONTHLY:
        return not mine.exists() and _closed(schedule, since, now)
    if Dataset(schedule.dataset) not in OF_MONTHS:
        return not mine.exists()
    # The month so far, each day anew: the one before gives its place up.
    newest = mine.order_by("-created_at").first()
    if newest is None:
        return True
    over = ExportState(newest.state) not in (ExportState.REQUESTED, ExportState.RUNNING)
    if over and newest.created_at.date() < now.date():
        Export.objects.filter(pk=newest.pk).update(cadence="")
        return True
    return False


def _closed(schedule: ExportSchedule, month: date, now: datetime) -> bool:
    """Whether a month is closed and, where there is one, invoiced; operators wait for everybody's."""
    parameters = {
        "tenant": schedule.tenant_id,
        "month": month,
        "now": now,
        "invoiced": Dataset(schedule.dataset) in OF_MONTHS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SQL["month_is_ready"], parameters)
        return bool(cursor.fetchone()[0])


# --- the end -----------------------------------------------------------------------------
def expire(now: datetime) -> int:
    """Ends exports that were kept long enough, and removes what they left, here and at their places; how
    many folders are clean."""
    _forget_scratch(now)
    with connection.cursor() as cursor:
        cursor.execute(_SQL["expire"], {"now": now})
        cursor.execute(_SQL["to_clean"], {"limit": 500})
        over = [row[0] for row in cursor.fetchall()]
    cleaned = 0
    for export in Export.objects.filter(pk__in=over).order_by("id"):
        try:
            sweep(open_place(export.place), folder_of(export))
        except Retryable as away:
            _LOG.warning("export not cleaned up", export=str(export), error=str(away))
            continue
        with connection.cursor() as cursor:
            cursor.execute(_SQL["cleaned"], {"id": export.id})
            cleaned += cursor.rowcount
    return cleaned


def _forget_scratch(now: datetime) -> None:
    """Scratch folders whose process was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(FileNotFoundError):  # its process ended just now
            if now.timestamp() - folder.stat().st_mtime > _SCRATCH_KEPT:
                shutil.rmtree(folder, ignore_errors=True)
