"""How templates show instants, states and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django import template
from django.template import Context
from django.urls import NoReverseMatch
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console import wording

register = template.Library()

register.filter("duration", wording.duration)
register.filter("parse", wording.parse)
register.filter("instant", wording.instant)
register.filter("time_split", wording.time_split)
register.filter("target_label", wording.target_label)
register.filter("target_text", wording.target_text)


def _instant(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else wording.parse(str(value) if value else None)


@register.simple_tag(takes_context=True)
def when(context: Context, value: object, form: str = "relative") -> SafeString | str:
    """An instant in the viewer's zone; UTC and the exact time on hover.

    `form`: `relative` (in 3 min), `exact` (Mon 30 Nov 2026, 09:00:00), `both`.
    """
    at = _instant(value)
    if at is None:
        return "–"
    visit = context["visit"]
    local = at.astimezone(visit.zone)
    utc = at.astimezone(UTC)
    exact = f"{local:%a} {local.day} {local:%b} {local.year}, {local:%H:%M:%S}"
    title = f"{exact} {local:%Z}\n{utc:%Y-%m-%d %H:%M:%S} UTC"
    machine = f"{utc:%Y-%m-%dT%H:%M:%SZ}"
    said = wording.relative(at, context["now"])
    if form == "exact":
        return format_html('<time datetime="{}" title="{}">{}</time>', machine, title, exact)
    if form == "both":
        return format_html(
            '<time datetime="{}" title="{}">{} <span class="dim" data-relative="{}">{}</span></time>',
            machine, title, exact, machine, said,
        )  # fmt: skip
    return format_html(
        '<time datetime="{}" title="{}" data-relative="{}">{}</time>', machine, title, machine, said
    )


@register.simple_tag(takes_context=True)
def clock(context: Context, value: object) -> SafeString | str:
    """An instant as a clock in the viewer's zone shows it, with the day where it is another one."""
    at = _instant(value)
    if at is None:
        return "–"
    local, today = at.astimezone(context["visit"].zone), context["now"].astimezone(context["visit"].zone)
    day = "" if local.date() == today.date() else f"{local:%a} {local.day} {local:%b}, "
    return f"{day}{local:%H:%M}"


@register.simple_tag
def state(value: object) -> SafeString:
    """A state as a word with a sign."""
    word, look, sign = wording.STATES.get(
        str(value), (str(value).replace("_", " ").capitalize(), "mute", "○")
    )
    return format_html(
        '<span class="state state-{}"><span class="sign" aria-hidden="true">{}</span>{}</span>',
        look,
        sign,
        word,
    )


_VERDICTS = {"due": "Due", "late": "Late", "skipped:paused": "Skipped"}


@register.simple_tag
def verdict(name: str, look: str) -> SafeString:
    """A verdict of the ledger that no run stands for yet."""
    sign = {"live": "◷", "wait": "◔"}.get(look, "○")
    return format_html(
        '<span class="state state-{}"><span class="sign" aria-hidden="true">{}</span>{}</span>',
        look,
        sign,
        _VERDICTS.get(name, name.replace(":", ", ").capitalize()),
    )


@register.simple_tag(takes_context=True)
def target_link(context: Context, label: object) -> SafeString | str:
    """A target's label, leading to the page of the target or task queue that it names."""
    if not label:
        return "–"
    page, key = wording.target_page(str(label))
    try:
        href = context["visit"].url(page, key)
    except NoReverseMatch:
        return format_html("<code>{}</code>", label)
    return format_html('<a class="plain" href="{}"><code>{}</code></a>', href, label)


@register.simple_tag(takes_context=True)
def job_link(context: Context, job_id: str, label: object = "") -> SafeString:
    """What a run belongs to: its job, which has a page, or a workflow, whose step it is."""
    if wording.of_workflow(job_id):
        return format_html("{} <code>{}</code>", wording.STEP, job_id)
    return format_html(
        '<a class="plain" href="{}">{}</a>', context["visit"].url("job", job_id), label or job_id
    )


@register.filter
def roll_words(value: object) -> str:
    """What becomes of a run on an excluded day."""
    return dict(wording.ROLLS).get(str(value), str(value))


@register.filter
def overlap_words(value: object) -> str:
    """What an occurrence does while the one before it has not ended."""
    return dict(wording.OVERLAPS).get(str(value), str(value))


@register.filter
def run_reason(run: Mapping[str, Any]) -> str:
    """Why a run is as it is."""
    return wording.run_reason(run)


@register.filter
def look(value: object) -> str:
    """The look of a state: good, bad, wait, live, mute."""
    return wording.STATES.get(str(value), ("", "mute", ""))[1]


@register.filter
def number(value: Any) -> str:
    """`12 345` with thin spaces; a dash for nothing."""
    if value is None or value == "":
        return "–"
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)


@register.filter
def tasks(value: int) -> str:
    """A number of tasks that a cell counted to its limit; `+` at the limit."""
    return f"{number(value)}{'+' if value >= wording.TASKS_COUNTED else ''}"


@register.filter
def schedule(document: Any) -> dict[str, str]:
    """`what` and `zone` of a schedule."""
    what, zone = wording.schedule(document or {})
    return {"what": what, "zone": zone}


@register.filter
def short_run(run_id: str) -> str:
    """The telling end of a run id: its instant (and number)."""
    return run_id.partition(":")[2].replace("T", " ").replace("Z", "")


@register.filter
def get(mapping: Any, key: str) -> Any:
    """A member by a name that is no identifier."""
    return mapping.get(key) if hasattr(mapping, "get") else None


@register.filter
def split(text: str) -> list[str]:
    """Words."""
    return text.split()


@register.simple_tag
def lane_y(lane: int, inset: int) -> int:
    """Where a bar of a lane begins (pixels), four lanes above the axis."""
    return 62 - lane * 19 + inset


@register.simple_tag
def herd_y(row: int) -> int:
    """Where an hour of the herd map lies (pixels)."""
    return row * 16


@register.simple_tag
def top(*heights: float) -> float:
    """Where a column that stands on others begins (percent from above)."""
    return round(100 - sum(heights), 2)


@register.filter
def words(name: object) -> str:
    """`RUN_ONCE` as `run once`, `FAILED,UNKNOWN` as `failed, unknown`."""
    return str(name).replace("_", " ").replace(",", ", ").lower()


@register.filter
def local(text: str) -> str:
    """A local time with offset (`2026-12-01T09:00:00-05:00`) as a clock there shows it."""
    at = wording.parse(text)
    return text if at is None else f"{at:%a} {at.day} {at:%b} {at.year}, {at:%H:%M:%S}"


@register.simple_tag(takes_context=True)
def field_time(context: Context, value: object) -> str:
    """An instant as a field for local times holds it, in the viewer's zone."""
    at = _instant(value)
    return "" if at is None else f"{at.astimezone(context['visit'].zone):%Y-%m-%dT%H:%M:%S}"


@register.simple_tag(takes_context=True)
def with_query(context: Context, **changes: object) -> str:
    """This address with some of its parameters changed (None: left out), from its first page."""
    given = context["request"].GET.copy()
    given.pop("cursor", None)
    for name, value in changes.items():
        given.pop(name, None)
        if value not in (None, ""):
            given[name] = str(value)
    return f"?{given.urlencode()}"


@register.simple_tag(takes_context=True)
def next_run(context: Context, job: dict[str, Any]) -> SafeString | str:
    """When a job starts next; with the instant it is for, where a window lies between."""
    scheduled, due = wording.parse(job["next_run_at"]), wording.parse(job["due_at"])
    if scheduled is None:
        return "–"
    if due is not None and scheduled <= context["now"] < due:
        # Its time has come, and it may start until its window ends.
        until = scheduled + timedelta(seconds=job.get("dispatch_window_seconds") or 0)
        return format_html(
            "due now, inside its window until {}; starts {}",
            clock(context, max(until, due)),
            when(context, due),
        )
    if due is not None and due <= context["now"]:
        return format_html('due now <span class="dim">for {}</span>', clock(context, scheduled))
    if due is None or due - scheduled < timedelta(seconds=1):
        return when(context, scheduled)
    meant = f"{scheduled.astimezone(context['visit'].zone):%H:%M:%S}"
    return format_html('{} <span class="dim">for {}</span>', when(context, due), meant)


@register.filter
def json(value: object) -> str:
    """A payload, indented."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
