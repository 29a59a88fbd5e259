"""A region that was lost hands in what only it has: every transaction of its tail, with the rows that tell
what it did, into the new owner's database. Read from its own cluster while that is fenced. Blocking.

Nothing is judged here. The owner's processes re-apply and report what they find (`cells/returning`); so once
all is handed in, nothing of this cluster is needed any more. It may be done again, in part or whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cells.domain.ids import RunKey, run_id
from cells.named_sql import load
from cells.ownership.cell_row import RowAway, RowSuperseded
from cells.ownership.entries import (
    Connection,
    Entry,
    Named,
    executions,
    look_up,
    strict_jobs,
    whole_jobs,
    whole_workflows,
)
from cells.ownership.tail import TailRow, connected

_SQL = load(Path(__file__).parent / "sql")


class _Did(msgspec.Struct):
    """Of a journal row's body, what is handed in; see `cells.records.JournalBody`."""

    claimed: list[tuple[str, str, int, int, int]] = []
    finished: list[tuple[str, str, int, int, int, str, int]] = []
    intents: list[tuple[str, str, str, int, int]] = []


_decode = msgspec.json.Decoder(_Did).decode
_encode = msgspec.json.Encoder().encode
#: Transactions whose rows are read and written together.
_PAGE = 50
#: Nobody's decisions: what a decision does page by page, and answers that are given again.
_NO_DECISIONS = (".replay", ".step")


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedIn:
    """What was handed in."""

    transactions: int
    entries: int
    dropped: int  # of tenants that exist nowhere any more


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
        told: set[Named] = set()  # things whose rows went along with an earlier entry
        dropped, entries = 0, 0
        erased = _Erased(owner, gone)
        waited_for = owner.execute(_SQL["unread_open"], {"region": region}).fetchone() == (True,)
        changed: dict[Named, Entry] = {}
        stepped: dict[Named, Entry] = {}
        for at in range(0, max(len(tail), 1), _PAGE):
            page = list(_entries(tail[at : at + _PAGE]))
            kept = [entry for entry in page if not erased(entry.tenant)]
            look_up(own, kept, told)
            if waited_for:
                changed |= strict_jobs(kept, told)
                stepped |= executions(kept)
            _put(owner, kept, region, epoch)
            entries += len(kept)
            dropped += len(page) - len(kept)
        # What those came to, behind all that made it so.
        for of, found in ((whole_jobs, changed), (whole_workflows, stepped)):
            names = list(found)
            for at in range(0, len(names), _PAGE):
                whole = of(own, {name: found[name] for name in names[at : at + _PAGE]})
                _put(owner, whole, region, epoch)
                entries += len(whole)
        done = HandedIn(transactions=len(tail), entries=entries, dropped=dropped)
        with owner.transaction():
            _leased(owner, epoch)
            owner.execute(_SQL["return_end"], {"region": region, "epoch": epoch, **asdict(done)})
            owner.execute(_SQL["unread_read"], {"region": region, "voted": -1})
        return done


def _put(owner: Connection, entries: Sequence[Entry], region: str, epoch: int) -> None:
    with owner.transaction():
        _leased(owner, epoch)
        owner.execute(_SQL["return_begin"], {"region": region, "epoch": epoch})
        if entries:
            concerned = [entry.tenant for entry in entries]
            _none_sealed(owner, concerned)
            owner.execute(_SQL["return_put"], _columns(entries, region))
            owner.execute(_SQL["return_concerns"], {"tenants": concerned, "region": region, "epoch": epoch})


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


def _entries(page: Sequence[TailRow]) -> Iterator[Entry]:
    for row in page:
        body = _decode(row.body)
        position = 0
        for tenant, verb, name, base, made in body.intents:
            if verb.endswith(_NO_DECISIONS):
                continue
            position += 1
            yield Entry(
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


def _effect(row: TailRow, position: int, kind: str, of: Sequence[Any], state: str | None) -> Entry:
    tenant, parent, instant, ordinal, run_epoch = of
    key = RunKey(
        parent_id=uuid.UUID(parent), scheduled_for=datetime.fromtimestamp(instant, UTC), ordinal=ordinal
    )
    text = run_id(key)
    kind_of_parent = "workflow-run" if text.startswith("wr_") else "job"
    return Entry(
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


def _columns(page: Sequence[Entry], region: str) -> dict[str, object]:
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
