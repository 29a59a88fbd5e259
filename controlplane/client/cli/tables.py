"""How things look in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from controlplane.client.calls import Occurrences
from controlplane.client.cli.wording import duration, moment, relative, schedule_text, style
from controlplane.client.documents import ApiKey, Job, Preview, RecentRun, Run, Stats, Target


def state(word: str) -> Text:
    """A state in its colour."""
    return Text(word, style=style(word))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table. Ids are never broken over lines."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        is_id = column in ("job", "run", "target", "key", "fingerprint", "member", "workflow")
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=is_id, overflow="fold"
        )
    return made


def card(rows: Iterable[tuple[str, Any]]) -> Table:
    """Names and values; what is None is left out."""
    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", (), []):
            if isinstance(value, dict | list):
                value = json.dumps(value, ensure_ascii=False)
            made.add_row(name, value if isinstance(value, Text) else escape(str(value)))
    return made


def _text(value: object) -> str:
    return "–" if value is None else escape(str(value))


# --- jobs --------------------------------------------------------------------------------
def jobs_table(jobs: Sequence[Job], now: datetime) -> RenderableType:
    """Jobs with their next run, local."""
    if not jobs:
        return "No jobs. `clockhouse jobs create --now --target <id>` makes a first one."
    made = table("job", "status", "name", "schedule", "target", "last run", "next run")
    for job in jobs:
        made.add_row(
            job.job_id,
            _status(job),
            _text(job.name or job.key),
            _text(schedule_text(job.schedule)),
            _target(job.target),
            _last(job.last_run, now),
            moment(job.next_run_at, now),
        )
    return made


def _status(job: Job) -> Text:
    # Done is not done well: in the colour of success, a failed one-off would seem to have succeeded.
    return Text(job.status) if job.status == "COMPLETED" else state(job.status)


def _last(run: RecentRun | None, now: datetime) -> Text:
    """How a run ended, and when; or how it stands."""
    if run is None:
        return Text("–")
    ended = f" ({relative(run.finished_at, now)})" if run.finished_at is not None else ""
    return state(run.state) + Text(ended)


def job_card(job: Job, now: datetime) -> RenderableType:
    """One job with its latest runs."""
    target = job.target
    parts: list[RenderableType] = [
        card(
            (
                ("job", job.job_id),
                ("status", _status(job)),
                ("last run", _last(job.recent_runs[0], now) if job.recent_runs else None),
                ("name", job.name),
                ("key", job.key),
                ("tags", ", ".join(job.tags)),
                ("schedule", schedule_text(job.schedule)),
                ("next run", moment(job.next_run_at, now)),
                ("its zone's time", job.next_run_local),
                ("target", _target_line(target)),
                ("priority", job.priority),
                ("window", f"{job.dispatch_window_seconds} s"),
                ("concurrency", _concurrency(job)),
                ("told of success", _told(job.raw.get("on_success"))),
                ("told of failure", _told(job.raw.get("on_failure"))),
                ("misfire policy", job.misfire_policy),
                ("regions", regions(job.region_policy)),
                ("version", job.version),
                ("payload", "not shown" if job.payload_hidden else job.payload),
            )
        )
    ]
    if job.recent_runs:
        runs = table("run", "state", "attempt", "scheduled", "finished", right=("attempt",))
        for run in job.recent_runs:
            runs.add_row(
                run.run_id,
                state(run.state),
                str(run.attempt),
                moment(run.scheduled_for, now),
                moment(run.finished_at, now),
            )
        parts += ["", runs]
    parts += [f"Note: {escape(note)}" for note in job.notes]
    return Group(*parts)


def regions(policy: str | None) -> str | None:
    """A region policy, and what it means where that is more than where the copies are."""
    if policy != "STRICT":
        return policy
    return "STRICT: changes and calls wait until a second region has confirmed them (UNCONFIRMED: repeat it)"


def _concurrency(job: Job) -> str | None:
    key = job.raw.get("concurrency_key")
    return f"at most {job.raw.get('max_concurrent') or 1} under way with {key}" if key else None


def _told(callback: Any) -> str | None:
    if not isinstance(callback, dict):
        return None
    return f"{callback.get('target_id')} {callback.get('path') or ''}".strip()


def preview_table(preview: Preview, now: datetime) -> RenderableType:
    """What a schedule would do."""
    made = table("at (UTC)", "in its zone", "when", "note")
    for occurrence in preview.occurrences:
        made.add_row(
            f"{occurrence.at:%Y-%m-%d %H:%M:%S}",
            _text(occurrence.local),
            relative(occurrence.at, now),
            escape(occurrence.note or ""),
        )
    jumps = (
        f"[dim]The zone's clock changes at {jump.at:%Y-%m-%d %H:%M}Z"
        f" ({jump.from_offset} → {jump.to_offset}, {jump.kind}).[/dim]"
        for jump in preview.transitions
    )
    return Group(made, *jumps)


def ledger_table(found: Occurrences, now: datetime) -> RenderableType:
    """Coming and past occurrences of a job, the farthest future first: one line of time."""
    if not found.next and not found.past:
        status = found.document.get("status", "SCHEDULED")
        waits = "--next shows the coming ones" if status == "SCHEDULED" else f"the job is {status}"
        return f"No occurrence has become due in this time; {waits}."
    made = table("scheduled", "in its zone", "verdict", "late", "what", right=("late",))
    for coming in reversed(found.next):
        made.add_row(moment(coming.at, now), _text(coming.local), "coming", "", escape(coming.note or ""))
    for past in found.past:
        several = f" ({past.count} occurrences)" if past.count > 1 else ""
        made.add_row(
            moment(past.scheduled_for, now),
            _text(past.local),
            Text(past.verdict, style=style(past.state or "")),
            duration(past.late_ms),
            escape((past.sentence or "") + several),
        )
    return made


# --- runs --------------------------------------------------------------------------------
def runs_table(runs: Sequence[Run], now: datetime) -> RenderableType:
    """Runs, with how long they took."""
    if not runs:
        return "No runs."
    made = table(
        "run", "state", "attempt", "target", "status", "scheduled", "took", "reason",
        right=("attempt", "status", "took"),
    )  # fmt: skip
    for run in runs:
        split = run.where_the_time_went
        made.add_row(
            run.run_id,
            state(run.state),
            str(run.attempt),
            _text(run.target_id),
            _text(run.http_status),
            moment(run.scheduled_for, now),
            duration(split.run_ms if split else None),
            escape(run.reason or ""),
        )
    return made


def run_card(run: Run, now: datetime) -> RenderableType:
    """One run: where its time went, and its attempts."""
    split = run.where_the_time_went
    rows: list[tuple[str, Any]] = [
        ("run", run.run_id),
        ("state", state(run.state)),
        ("reason", run.reason),
        ("target", run.target_id),
        ("scheduled", moment(run.scheduled_for, now)),
        ("due", moment(run.due_at, now)),
        ("finished", moment(run.finished_at, now)),
        ("next attempt", moment(run.next_attempt_at, now) if run.next_attempt_at else None),
        ("epoch", run.epoch),
        ("worker", run.worker_id),
        ("heartbeat", moment(run.heartbeat_at, now) if run.heartbeat_at else None),
        ("lease ends", moment(run.lease_expires_at, now) if run.worker_id and not run.finished else None),
        ("progress", run.progress),
        ("cancel", "requested" if run.cancel_requested else None),
        ("tells of", run.raw.get("callback_of")),
    ]
    rows += [
        ("told", f"{told.get('target_id')}: {told.get('state')}") for told in run.raw.get("callbacks") or ()
    ]
    if split is not None:
        waits = {name.removesuffix("_ms"): ms for name, ms in split.raw.items() if name.endswith("_ms")}
        told = ", ".join(f"{name} {duration(ms)}" for name, ms in waits.items() if ms is not None)
        rows.append(("time went to", told))
    attempts = table("attempt", "outcome", "status", "started", "host", "error", right=("status",))
    for attempt in run.attempts:
        attempts.add_row(
            str(attempt.number)
            if (attempt.series or 1) == 1
            else f"{attempt.number} of series {attempt.series}",
            _text(attempt.outcome),
            _text(attempt.status),
            moment(attempt.started_at, now),
            _text(attempt.host),
            escape(attempt.error or ""),
        )
    if not run.attempts:
        return card(rows)
    body = run.attempts[-1].body
    said: list[RenderableType] = (
        ["", "[bold]What the last call was answered[/bold]", escape(body)] if body else []
    )
    return Group(card(rows), "", attempts, *said)


# --- the rest ------------------------------------------------------------------------------
def targets_table(targets: Sequence[Target], now: datetime) -> RenderableType:
    """Targets by id."""
    if not targets:
        return "No targets. `clockhouse targets register <base url>` registers one."
    made = table("target", "state", "base URL", "team", "concurrency", "approved", right=("concurrency",))
    for target in targets:
        made.add_row(
            target.target_id,
            state(target.state),
            _text(target.base_url),
            _text(target.owner_team),
            _text(target.max_concurrency),
            moment(target.approved_at, now),
        )
    return made


def target_card(target: Target, now: datetime) -> RenderableType:
    """One target."""
    return card(
        (
            ("target", target.target_id),
            ("state", state(target.state)),
            ("base URL", target.base_url),
            ("team", target.owner_team),
            ("description", target.description),
            ("concurrency", target.max_concurrency),
            ("latency SLO", duration(target.latency_slo_ms)),
            ("auth", target.auth.get("type")),
            ("delivered twice", _drill(target.raw.get("drill"))),
            ("approved", moment(target.approved_at, now)),
            ("version", target.version),
        )
    )


def _drill(drill: Any) -> str | None:
    return f"{drill.get('duplicate_percent')} % of calls" if isinstance(drill, dict) else None


def keys_table(keys: Sequence[ApiKey], now: datetime) -> RenderableType:
    """Keys, without their texts."""
    made = table("key", "state", "name", "scopes", "last used", "expires")
    for key in keys:
        made.add_row(
            key.key_id,
            state(key.state),
            _text(key.name),
            _text(" ".join(key.scopes)),
            moment(key.last_used_at, now),
            moment(key.expires_at, now),
        )
    return made


def stats_table(stats: Stats, now: datetime) -> RenderableType:
    """Minutes and their sum."""
    numbers = ("started", "succeeded", "failed", "retried", "skipped", "lag p50", "lag p99")
    made = table("minute", *numbers, right=numbers)
    rows = [(moment(minute.minute, now), minute) for minute in stats.minutes]
    rows += [("all", stats.total)] if stats.total is not None else []
    for name, minute in rows:
        made.add_row(
            name,
            *(
                str(n)
                for n in (minute.started, minute.succeeded, minute.failed, minute.retried, minute.skipped)
            ),
            duration(minute.lag_p50_ms),
            duration(minute.lag_p99_ms),
        )
    return made


def _target(target: Mapping[str, Any]) -> str:
    queue = target.get("task_queue")
    if definition := target.get("definition"):
        return f"workflow:{definition}"
    return f"queue:{queue}" if queue else _text(target.get("target_id"))


def _target_line(target: Mapping[str, Any]) -> str:
    if definition := target.get("definition"):
        return f"workflow {definition}, {target.get('version') or 'the newest version'}"
    if queue := target.get("task_queue"):
        return f"task queue {queue}, lease {target.get('lease_seconds')} s"
    return f"{target.get('method')} {target.get('target_id')}{target.get('path') or ''}"
