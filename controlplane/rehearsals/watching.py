"""What each stage of a rehearsal does, once; everything may be done again after a crash of anything.

The cut needs nobody for its end: the keepers know until when it lasts.
"""

from __future__ import annotations

import time
from datetime import timedelta
from urllib.parse import urlencode

from django.utils import timezone

from controlplane.evacuations.keepers import (
    KeeperRefused,
    KeeperUnreachable,
    SiteStatus,
    ask_keeper,
    statuses_of,
)
from controlplane.ownership import OwnershipStore
from controlplane.rehearsals.models import Rehearsal, RehearsedCell, Stage
from controlplane.rehearsals.report import report_of
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Site

#: How long a region that is heard again may take to become what it is now (seconds).
RETURN_SECONDS = 180.0
#: Runs due so long before the cut are counted, too, and so long after it are waited for (seconds).
BEFORE_SECONDS, AFTER_SECONDS = 60, 30
#: How long the ledger of a cell that does not answer is asked for (seconds).
COUNT_SECONDS = 300.0
#: For so long a keeper that does not answer is told of the cut again, before the rehearsal is given up.
TELL_SECONDS = 10.0
#: A cut that is taken back ends so soon (seconds); a keeper takes none that is over.
_LIFT_SECONDS = 2.0


def cut(found: Rehearsal, rows: list[RehearsedCell]) -> Stage | None:
    """Tells every keeper until when: the standbys' first, then the region's own. Asked again it is the same
    cut, unless that is over. Where one does not take part, the others are told that it is over: a standby
    that receives nothing while the owner works on is none."""
    if found.until is None or found.cut_at is None:
        found.cut_at = timezone.now()
        found.until = found.cut_at + timedelta(seconds=found.seconds)
        found.save(update_fields=["cut_at", "until"])
    for row in rows:
        sites = sorted(Site.objects.filter(cell=row.cell), key=lambda site: site.region_id == found.region_id)
        for site in sites:
            wish = {"epoch": row.epoch, "region": found.region_id, "until": found.until.timestamp()}
            try:
                ask_keeper(site, row.cell, "cut-off", wish)
            except KeeperUnreachable as fault:
                if time.time() < found.cut_at.timestamp() + TELL_SECONDS:
                    found.why = f"{site} is told again: {fault}"[:500]
                    return None
                return _given_up(found, rows, f"{site} does not take part: {fault}")
            except KeeperRefused as fault:
                return _given_up(found, rows, f"{site} does not take part: {fault}")
    found.why = f"{found.region_id} is cut off until {found.until:%H:%M:%S} UTC"
    return Stage.CUT


def _given_up(found: Rehearsal, rows: list[RehearsedCell], why: str) -> Stage:
    """Takes back what was told, also from who did not answer: it may have heard."""
    left = []
    for row in rows:
        for site in Site.objects.filter(cell=row.cell).order_by("region_id"):
            wish = {"epoch": row.epoch, "region": found.region_id, "until": time.time() + _LIFT_SECONDS}
            try:
                ask_keeper(site, row.cell, "cut-off", wish)
            except (KeeperRefused, KeeperUnreachable):
                left.append(str(site))
    ends = "" if found.until is None else f" until {found.until:%H:%M:%S} UTC"
    rest = f"; what {', '.join(left)} may have heard lasts{ends}" if left else "; the cut is taken back"
    found.why = f"given up: {why[:250]}{rest}"[:500]
    return Stage.FAILED


def watch(found: Rehearsal, rows: list[RehearsedCell]) -> Stage | None:
    """Who lets go, who takes over, and when."""
    now = time.time()
    said = []
    for row in rows:
        for status in statuses_of(list(Site.objects.filter(cell=row.cell))):
            _note(found, row, status, now)
        owner = row.facts.get("owner_after")
        said.append(f"{row.cell_id}: {'owned by ' + owner if owner else 'nobody has taken it over yet'}")
    if found.until is None or now >= found.until.timestamp():
        return Stage.RETURNING
    left = round(found.until.timestamp() - now)
    found.why = f"{found.region_id} is cut off for {left} s more; {'; '.join(said[:5])}"[:500]
    return None


def _note(found: Rehearsal, row: RehearsedCell, status: SiteStatus, now: float) -> None:
    facts = row.facts
    if status.region == found.region_id:
        if status.away:
            return
        if status.owns and "owner_after" not in facts:
            facts["owned_until"] = now
        elif "let_go_at" not in facts and "owned_until" in facts:
            facts["let_go_at"] = now
        if status.committed_at is not None:
            facts["committed_at"] = max(status.committed_at, facts.get("committed_at", 0.0))
        if status.primary:
            facts["position"] = max(status.position, facts.get("position", 0))
    elif status.owns and "owned_at" not in facts:
        facts |= {"owned_at": now, "owner_after": status.region, "epoch": status.epoch}
    if status.region == facts.get("owner_after"):
        # Looked at by its keeper every so often: the last of it is what it had when it was promoted.
        facts["replayed_at"] = status.replayed_at


def returning(found: Rehearsal, rows: list[RehearsedCell], store: OwnershipStore) -> Stage | None:
    """The region is heard again. It follows, or has strayed, or (nobody took the cell over) owns it still."""
    late = found.until is None or time.time() > found.until.timestamp() + RETURN_SECONDS
    waits = []
    for row in rows:
        if "returned_as" in row.facts:
            continue
        site = Site.objects.filter(cell=row.cell, region=found.region_id)
        told = statuses_of(list(site))
        if not told:
            row.facts["returned_as"] = f"the site in {found.region_id} was removed"
            continue
        status = told[0]
        owns = status.act == "OWN" and status.owns
        if not status.away and (
            owns or status.act == "STRAYED" or (status.act == "FOLLOW" and status.streaming)
        ):
            row.facts["returned_as"] = status.act
            row.facts.setdefault("owner_after", status.owner)
            row.facts.setdefault("epoch", status.epoch)
            _look_at_fork(row, store)
        elif late:
            row.facts["returned_as"] = status.away or f"{status.act}: {status.why}"[:300]
        else:
            waits.append(f"{row.cell_id}: {status.away or status.why}")
    settled = found.until is None or time.time() > found.until.timestamp() + AFTER_SECONDS
    if not waits and settled:
        return Stage.COUNTING
    found.why = f"{found.region_id} is heard again; {'; '.join(waits) or 'what is late still begins'}"[:500]
    return None


def _look_at_fork(row: RehearsedCell, store: OwnershipStore) -> None:
    epoch = row.facts["epoch"]
    row.facts["fork"] = next((p.fork for p in store.promotions(row.cell_id) if p.epoch == epoch), None)


def count(found: Rehearsal, rows: list[RehearsedCell]) -> Stage | None:
    """Reads the cells' ledgers."""
    if found.cut_at is None or found.until is None:
        return Stage.DONE
    begin, end = found.cut_at - timedelta(seconds=BEFORE_SECONDS), found.until
    late = time.time() > end.timestamp() + RETURN_SECONDS + COUNT_SECONDS
    waits = []
    for row in rows:
        if row.counted is not None:
            continue
        asked = {
            "since": begin.isoformat(),
            "until": end.isoformat(),
            "epoch": row.facts.get("epoch", row.epoch),
        }
        try:
            row.counted = call_cell(
                row.cell, "GET", f"/internal/punctuality?{urlencode(asked)}", timeout=60.0
            )
        except CellUnreachable as fault:
            if late:
                row.counted = {"fault": str(fault)[:300]}
            else:
                waits.append(str(fault)[:200])
    for row in rows:
        if row.counted is not None:
            row.report = report_of(
                cell=row.cell_id,
                region=found.region_id,
                cut_at=found.cut_at.timestamp(),
                facts=row.facts,
                counted=row.counted,
            )
    if waits:
        found.why = f"waits for ledgers: {'; '.join(waits)}"[:500]
        return None
    return Stage.DONE
