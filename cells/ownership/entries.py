"""Entries of a region's tail, and the rows of its database that tell what they did. Blocking."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from cells.named_sql import load
from cells.ownership.tail import TailRow

_SQL = load(Path(__file__).parent / "sql")
#: The region policy whose rows come whole from a site that was given up.
_STRICT = "STRICT"
#: The verb of a job that comes whole: no decision of anybody's.
WHOLE_JOB = "job.whole"
#: The same of an execution of a workflow.
WHOLE_WORKFLOW = "workflow.whole"
#: Behind all that a transaction's entries are numbered with.
_WHOLE_POSITION = 1_000_000
#: Signals may be older by so much than the transaction that is said to hold them.
_SIGNALS_BEFORE = timedelta(seconds=60)

Connection = psycopg.Connection[tuple[Any, ...]]
#: Whose, and which.
Named = tuple[str, str]
_Rows = dict[Named, list[Any]]


class _Said(msgspec.Struct):
    """Of a signal, what came with it."""

    payload: msgspec.Raw = msgspec.Raw(b"null")


_said = msgspec.json.Decoder(_Said).decode


@dataclass(kw_only=True, slots=True)
class Entry:
    """One act of a transaction, for one tenant."""

    tenant: str
    row: TailRow
    position: int
    kind: str
    thing: str
    verb: str | None = None
    policy: str | None = None
    run_key: str | None = None
    parent: str | None = None
    instant: int | None = None
    ordinal: int | None = None
    run_epoch: int | None = None
    state: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def look_up(own: Connection, page: Sequence[Entry], told: set[Named]) -> None:
    """Adds the rows that tell what the entries did."""
    _look_up_jobs(own, page, told)
    _look_up_runs(own, page)
    _look_up_targets(own, page)
    _look_up_workflows(own, page, told)
    wanted = _wanted(page, "workflow_definition.put")
    definitions = _grouped(own, "return_definitions", wanted)
    for entry in page:
        if entry.verb == "workflow_definition.put":
            rows = definitions.get((entry.tenant, entry.detail["name"]), [])
            made = entry.detail["made"]
            entry.detail["definitions"] = [row for row in rows if row["version"] == made]
    _look_up_calendars(own, page)


def _look_up_calendars(own: Connection, page: Sequence[Entry]) -> None:
    wanted = {(entry.tenant, entry.thing[9:]) for entry in page if entry.thing.startswith("calendar:")}
    calendars = _grouped(own, "return_calendars", wanted)
    for entry in page:
        if entry.thing.startswith("calendar:"):
            found = calendars.get((entry.tenant, entry.thing[9:]), [])
            entry.detail["calendars"] = [each["calendar"] for each in found]
            entry.detail["calendar_versions"] = [
                version
                for each in found
                for version in each["versions"] or ()
                if version["version"] == entry.detail["made"]
            ]


def _look_up_jobs(own: Connection, page: Sequence[Entry], told: set[Named]) -> None:
    mentioned = {(entry.tenant, entry.thing[4:]) for entry in page if entry.thing.startswith("job:")}
    jobs = _grouped(own, "return_jobs", mentioned)
    created = _wanted(page, "job.create")
    versions = _grouped(own, "return_versions", created | _wanted(page, "job.edit", "job.calendar"))
    facets = _grouped(own, "return_facets", created)
    runs = _grouped(own, "return_runs_of", created)
    letters = _grouped(own, "return_letters", created)
    for entry in page:
        if not entry.thing.startswith("job:"):
            continue
        job = (entry.tenant, entry.thing[4:])
        rows = jobs.get(job, [])
        if rows:
            entry.policy = rows[0]["region_policy"]
        if entry.verb == "job.create":
            told.add((entry.tenant, entry.thing))
            entry.detail |= {
                "jobs": rows,
                "job_versions": versions.get(job, []),
                "job_facets": facets.get(job, []),
                "runs": runs.get(job, []),
                "dlq": letters.get(job, []),
            }
        elif entry.verb in ("job.edit", "job.calendar") and (entry.tenant, entry.thing) not in told:
            made = entry.detail["made"]
            entry.detail["job_versions"] = [row for row in versions.get(job, []) if row["version"] == made]


def _look_up_runs(own: Connection, page: Sequence[Entry]) -> None:
    triggered: dict[tuple[str, str, int, int], Entry] = {}
    for entry in page:
        if entry.verb in ("run.trigger", "run.cancel"):
            job, _, rest = entry.detail["name"].partition(":")
            instant, _, ordinal = rest.partition(":")
            if instant.isdigit() and ordinal.isdigit():
                triggered[entry.tenant, job, int(instant), int(ordinal)] = entry
    keys = {
        (entry.tenant, entry.parent, entry.instant, entry.ordinal)
        for entry in page
        if entry.parent is not None
    } | triggered.keys()
    if not keys:
        return
    found = own.execute(
        _SQL["return_runs"],
        {
            "tenants": [key[0] for key in keys],
            "things": [key[1] for key in keys],
            "instants": [key[2] for key in keys],
            "ordinals": [key[3] for key in keys],
        },
    ).fetchall()
    rows = {(row[0].hex, row[1].hex, row[2], row[3]): row for row in found}
    for entry in page:
        if entry.parent is None:
            continue
        row = rows.get((entry.tenant, entry.parent, entry.instant or 0, entry.ordinal or 0))
        if row is not None:
            entry.detail["run"] = row[4]
            entry.run_key = row[5] or entry.run_key
    for key, entry in triggered.items():
        if entry.verb == "run.trigger" and key in rows:
            entry.detail["runs"] = [rows[key][6]]


def _look_up_targets(own: Connection, page: Sequence[Entry]) -> None:
    wanted = {(entry.tenant, entry.thing[7:]) for entry in page if entry.thing.startswith("target:")}
    if not wanted:
        return
    found = own.execute(_SQL["return_targets"], _names(wanted)).fetchall()
    rows = {(row[0].hex, row[1]): (row[2], row[3]) for row in found}
    for entry in page:
        if entry.thing.startswith("target:"):
            target = rows.get((entry.tenant, entry.thing[7:]))
            entry.detail["targets"] = [] if target is None else [target[0]]
            entry.detail["target_secrets"] = [] if target is None else target[1]


def _look_up_workflows(own: Connection, page: Sequence[Entry], told: set[Named]) -> None:
    wanted = {(entry.tenant, entry.thing[9:]) for entry in page if entry.thing.startswith("workflow:")}
    if not wanted:
        return
    rows = {name: found[0] for name, found in _grouped(own, "return_workflows", wanted).items()}
    started = {
        (name[0], uuid.UUID(rows[name]["run_id"]).hex)
        for name in _wanted(page, "workflow.start")
        if name in rows and rows[name]["parent"] is None
    }
    whole = {
        table: _grouped(own, statement, started)
        for table, statement in (
            ("workflow_events", "return_histories"),
            ("workflow_inbox", "return_inboxes"),
            ("workflow_signals", "return_signals_of"),
            ("runs", "return_runs_of"),
        )
    }
    since = min(entry.row.at for entry in page) - _SIGNALS_BEFORE
    signals: _Rows = {}
    for tenant, workflow, signal, data in own.execute(
        _SQL["return_signals"], {**_names(_wanted(page, "workflow.signal")), "since": since}
    ):
        # As its sender wrote it: who says it again is recognised by it.
        payload = None if data is None else bytes(_said(data).payload).decode()
        signals.setdefault((tenant.hex, workflow), []).append({**signal, "payload": payload})
    ends = {
        (name[0], uuid.UUID(rows[name]["run_id"]).hex)
        for name in _wanted(page, "workflow.cancel", "workflow.terminate")
        if name in rows
    }
    told_to = _grouped(own, "return_told", ends)
    for entry in page:
        if not entry.thing.startswith("workflow:"):
            continue
        name = (entry.tenant, entry.thing[9:])
        workflow = rows.get(name)
        if workflow is not None:
            entry.policy = workflow["region_policy"]
        if entry.verb == "workflow.start" and workflow is not None:
            told.add((entry.tenant, entry.thing))
            run = (entry.tenant, uuid.UUID(workflow["run_id"]).hex)
            entry.detail["workflows"] = [workflow]
            entry.detail |= {table: found.get(run, []) for table, found in whole.items()}
        elif entry.verb in ("workflow.cancel", "workflow.terminate") and workflow is not None:
            run_id = entry.detail["run_id"] = uuid.UUID(workflow["run_id"]).hex
            entry.detail["told"] = told_to.get((entry.tenant, run_id), [])
        elif entry.verb == "workflow.signal" and (entry.tenant, entry.thing) not in told:
            told.add((entry.tenant, entry.thing))
            entry.detail["signals"] = signals.get(name, [])


def strict_jobs(page: Sequence[Entry], told: set[Named]) -> dict[Named, Entry]:
    """The STRICT jobs that entries changed, but for those that came whole with their creation; each with an
    entry that did."""
    return {
        (entry.tenant, entry.thing): entry
        for entry in page
        if entry.policy == _STRICT
        and entry.thing.startswith("job:")
        and (entry.tenant, entry.thing) not in told
    }


def executions(page: Sequence[Entry]) -> dict[Named, Entry]:
    """The executions of workflows whose steps were claimed or ended, each with an entry that tells of it."""
    return {(entry.tenant, entry.thing): entry for entry in page if entry.thing.startswith("workflow-run:")}


def whole_workflows(own: Connection, changed: Mapping[Named, Entry]) -> list[Entry]:
    """Those of such executions that are STRICT, as they are here, their steps included."""
    runs = {(tenant, thing.partition(":")[2]) for tenant, thing in changed}
    found = _grouped(own, "return_strict_executions", runs)
    tables = {
        table: _grouped(own, statement, set(found))
        for table, statement in (
            ("workflow_events", "return_histories"),
            ("workflow_inbox", "return_inboxes"),
            ("workflow_signals", "return_signals_of"),
            ("runs", "return_runs_of"),
        )
    }
    return [
        Entry(
            tenant=name[0],
            row=entry.row,
            position=_WHOLE_POSITION + entry.position,
            kind="INTENT",
            thing=f"workflow-run:{name[1]}",
            verb=WHOLE_WORKFLOW,
            policy=_STRICT,
            detail={
                "workflows": rows,
                **{table: of_runs.get(name, []) for table, of_runs in tables.items()},
            },
        )
        for name, rows in found.items()
        for entry in (changed[name[0], f"workflow-run:{name[1]}"],)
    ]


def whole_jobs(own: Connection, changed: Mapping[Named, Entry]) -> list[Entry]:
    """Such jobs as they are here, their runs included: what was confirmed to somebody holds."""
    jobs = {(tenant, thing.removeprefix("job:")) for tenant, thing in changed}
    tables = {
        table: _grouped(own, statement, jobs)
        for table, statement in (
            ("jobs", "return_jobs"),
            ("job_versions", "return_versions"),
            ("job_facets", "return_facets"),
            ("runs", "return_runs_of"),
            ("dlq", "return_letters"),
        )
    }
    return [
        Entry(
            tenant=tenant,
            row=entry.row,
            position=_WHOLE_POSITION + entry.position,
            kind="INTENT",
            thing=thing,
            verb=WHOLE_JOB,
            policy=_STRICT,
            detail={
                table: rows.get((tenant, thing.removeprefix("job:")), []) for table, rows in tables.items()
            },
        )
        for (tenant, thing), entry in changed.items()
    ]


def _wanted(page: Sequence[Entry], *verbs: str) -> set[Named]:
    return {(entry.tenant, entry.thing.partition(":")[2]) for entry in page if entry.verb in verbs}


def _grouped(own: Connection, statement: str, wanted: set[Named]) -> _Rows:
    found: _Rows = {}
    if wanted:
        for tenant, thing, row in own.execute(_SQL[statement], _names(wanted)):
            name = thing.hex if isinstance(thing, uuid.UUID) else thing
            found.setdefault((tenant.hex, name), []).append(row)
    return found


def _names(wanted: set[Named]) -> dict[str, object]:
    order = sorted(wanted)
    return {"tenants": [tenant for tenant, _ in order], "things": [thing for _, thing in order]}
