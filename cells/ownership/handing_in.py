"""A region that was lost hands in what only it has: every transaction of its tail, with the rows that tell
what it did, into the new owner's database. Read from its own cluster while that is fenced. Blocking.

Nothing is judged here. The owner's processes re-apply and report what they find (`cells/returning`); so once
all is handed in, nothing of this cluster is needed any more. It may be done again, in part or whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from cells.domain.ids import RunKey, run_id
from cells.named_sql import load
from cells.ownership.cell_row import RowAway, RowSuperseded
from cells.ownership.tail import TailRow, connected

_SQL = load(Path(__file__).parent / "sql")


class _Did(msgspec.Struct):
    """Of a journal row's body, what is handed in; see `cells.records.JournalBody`."""

    claimed: list[tuple[str, str, int, int, int]] = []
    finished: list[tuple[str, str, int, int, int, str, int]] = []
    intents: list[tuple[str, str, str, int, int]] = []


class _Said(msgspec.Struct):
    """Of a signal, what came with it."""

    payload: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Did).decode
_said = msgspec.json.Decoder(_Said).decode
_encode = msgspec.json.Encoder().encode
#: Transactions whose rows are read and written together.
_PAGE = 50
#: Nobody's decisions: what a decision does page by page, and answers that are given again.
_NO_DECISIONS = (".replay", ".step")
#: Signals may be older by so much than the transaction that is said to hold them.
_SIGNALS_BEFORE = timedelta(seconds=60)

Connection = psycopg.Connection[tuple[Any, ...]]
#: Whose, and which.
_Named = tuple[str, str]
_Rows = dict[_Named, list[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedIn:
    """What was handed in."""

    transactions: int
    entries: int
    dropped: int  # of tenants that exist nowhere any more


@dataclass(kw_only=True, slots=True)
class _Entry:
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


def hand_in(
    own_url: str,
    tail: Sequence[TailRow],
    *,
    owner_url: str,
    region: str,
    epoch: int,
    gone: Callable[[uuid.UUID], bool],
) -> HandedIn:
    """Writes what `tail` (of the cluster at `own_url`) did into the database of the owner under `epoch`.
    `gone` says of a tenant that the owner does not know whether it exists nowhere any more.
    `RowSuperseded` where the owner's lease has ended."""
    with connected(own_url) as own, connected(owner_url) as owner:
        before = owner.execute(_SQL["return_read"], {"region": region, "epoch": epoch}).fetchone()
        if before is not None:
            return HandedIn(transactions=before[0], entries=before[1], dropped=before[2])
        told: set[_Named] = set()  # things whose rows went along with an earlier entry
        dropped, entries = 0, 0
        erased = _Erased(owner, gone)
        for at in range(0, max(len(tail), 1), _PAGE):
            page = list(_entries(tail[at : at + _PAGE]))
            kept = [entry for entry in page if not erased(entry.tenant)]
            _look_up(own, kept, told)
            with owner.transaction():
                _leased(owner, epoch)
                owner.execute(_SQL["return_begin"], {"region": region, "epoch": epoch})
                if kept:
                    _none_sealed(owner, [entry.tenant for entry in kept])
                    owner.execute(_SQL["return_put"], _columns(kept, region))
                    concerned = {"tenants": [entry.tenant for entry in kept]}
                    owner.execute(_SQL["return_concerns"], {**concerned, "region": region, "epoch": epoch})
            entries += len(kept)
            dropped += len(page) - len(kept)
        done = HandedIn(transactions=len(tail), entries=entries, dropped=dropped)
        with owner.transaction():
            _leased(owner, epoch)
            owner.execute(_SQL["return_end"], {"region": region, "epoch": epoch, **asdict(done)})
        return done


def _leased(owner: Connection, epoch: int) -> None:
    if owner.execute(_SQL["return_lease"], {"epoch": epoch}).fetchone() is None:
        raise RowSuperseded(f"the cell is not owned under epoch {epoch} just now")


def _none_sealed(owner: Connection, tenants: Sequence[str]) -> None:
    """What a move has sealed is written by nobody, until it is here again or gone."""
    for tenant, sealed in owner.execute(_SQL["return_tenants"], {"tenants": sorted(set(tenants))}):
        if sealed:
            raise RowAway(f"tenant {tenant} is on the move: it is handed in when that is over")


class _Erased:
    """Which tenants exist nowhere any more."""

    def __init__(self, owner: Connection, gone: Callable[[uuid.UUID], bool]) -> None:
        self._owner = owner
        self._gone = gone
        self._known: dict[str, bool] = {}

    def __call__(self, tenant: str) -> bool:
        if tenant not in self._known:
            erased = self._owner.execute(_SQL["return_erased"], {"tenant": tenant}).fetchone() == (True,)
            known = self._owner.execute(_SQL["return_tenants"], {"tenants": [tenant]}).fetchone()
            self._known[tenant] = erased or (known is None and self._gone(uuid.UUID(tenant)))
        return self._known[tenant]


def _entries(page: Sequence[TailRow]) -> Iterator[_Entry]:
    for row in page:
        body = _decode(row.body)
        position = 0
        for tenant, verb, name, base, made in body.intents:
            if verb.endswith(_NO_DECISIONS):
                continue
            position += 1
            yield _Entry(
                tenant=tenant,
                row=row,
                position=position,
                kind="INTENT",
                thing=thing_of(verb, name),
                verb=verb,
                detail={"name": name, "base": base, "made": made},
            )
        position = 100_000  # never that of an intent, whatever counts as a decision one day
        for claimed in body.claimed:
            position += 1
            yield _effect(row, position, "CLAIMED", claimed, None)
        position = 200_000
        for *finished, state, lag_ms in body.finished:
            position += 1
            entry = _effect(row, position, "FINISHED", finished, state)
            if lag_ms >= 0:
                entry.detail["lag_ms"] = lag_ms
            yield entry


def thing_of(verb: str, name: str) -> str:
    """What an intent is about, as entries name it."""
    kind, _, what = verb.partition(".")
    if kind == "run":
        kind, name = "job", name.partition(":")[0]
    if kind == "workflow" and what == "start":
        return f"workflow:{name}"
    return f"{kind}:{name}"


def _effect(row: TailRow, position: int, kind: str, of: Sequence[Any], state: str | None) -> _Entry:
    tenant, parent, instant, ordinal, run_epoch = of
    key = RunKey(
        parent_id=uuid.UUID(parent), scheduled_for=datetime.fromtimestamp(instant, UTC), ordinal=ordinal
    )
    text = run_id(key)
    kind_of_parent = "workflow-run" if text.startswith("wr_") else "job"
    return _Entry(
        tenant=tenant,
        row=row,
        position=position,
        kind=kind,
        thing=f"{kind_of_parent}:{parent}",
        run_key=text,
        parent=parent,
        instant=instant,
        ordinal=ordinal,
        run_epoch=run_epoch,
        state=state,
    )


# --- rows --------------------------------------------------------------------------------
def _look_up(own: Connection, page: Sequence[_Entry], told: set[_Named]) -> None:
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


def _look_up_jobs(own: Connection, page: Sequence[_Entry], told: set[_Named]) -> None:
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


def _look_up_runs(own: Connection, page: Sequence[_Entry]) -> None:
    triggered: dict[tuple[str, str, int, int], _Entry] = {}
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


def _look_up_targets(own: Connection, page: Sequence[_Entry]) -> None:
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


def _look_up_workflows(own: Connection, page: Sequence[_Entry], told: set[_Named]) -> None:
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
        elif entry.verb == "workflow.signal" and (entry.tenant, entry.thing) not in told:
            told.add((entry.tenant, entry.thing))
            entry.detail["signals"] = signals.get(name, [])


def _wanted(page: Sequence[_Entry], *verbs: str) -> set[_Named]:
    return {(entry.tenant, entry.thing.partition(":")[2]) for entry in page if entry.verb in verbs}


def _grouped(own: Connection, statement: str, wanted: set[_Named]) -> _Rows:
    found: _Rows = {}
    if wanted:
        for tenant, thing, row in own.execute(_SQL[statement], _names(wanted)):
            name = thing.hex if isinstance(thing, uuid.UUID) else thing
            found.setdefault((tenant.hex, name), []).append(row)
    return found


def _names(wanted: set[_Named]) -> dict[str, object]:
    order = sorted(wanted)
    return {"tenants": [tenant for tenant, _ in order], "things": [thing for _, thing in order]}


def _columns(page: Sequence[_Entry], region: str) -> dict[str, object]:
    return {
        "region": region,
        "tenants": [entry.tenant for entry in page],
        "epochs": [entry.row.epoch for entry in page],
        "hosts": [entry.row.host_id for entry in page],
        "seqs": [entry.row.seq for entry in page],
        "positions": [entry.position for entry in page],
        "ats": [entry.row.at for entry in page],
        "kinds": [entry.kind for entry in page],
        "verbs": [entry.verb for entry in page],
        "things": [entry.thing for entry in page],
        "policies": [entry.policy for entry in page],
        "keys": [entry.run_key for entry in page],
        "parents": [entry.parent for entry in page],
        "instants": [entry.instant for entry in page],
        "ordinals": [entry.ordinal for entry in page],
        "run_epochs": [entry.run_epoch for entry in page],
        "states": [entry.state for entry in page],
        "details": [_encode(entry.detail) for entry in page],
    }
