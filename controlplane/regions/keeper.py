"""Keeps one cell's site: looks, decides, acts, and looks again. Blocking; a thread or process of its own.

Everything it needs to know after a crash is in the ownership store and in the cluster itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import redis
import structlog

from cells.ownership.cell_row import CellRow, Probe, RowAway, RowSuperseded
from cells.ownership.lease import Sight, Tenure, Watch
from cells.standby.cluster import Cluster, ClusterAway, Look, NotThere, Outvoted, describe
from cells.standby.election import ranked
from cells.standby.folder import Folder
from cells.standby.lines import Place, Promotion, next_timeline
from controlplane.ownership import OwnershipStore, PromotionRecord, Superseded
from controlplane.ownership.store import CellOwnership, OwnershipUnavailable
from controlplane.regions.deciding import Act, Decision, Known, decide, newest, promotion_of
from controlplane.regions.returning import Returning
from controlplane.regions.settings import Settings
from controlplane.regions.takeover import settle_tenants
from controlplane.regions.unread import follow_owner, passed_over
from controlplane.regions.wishes import OPERATOR, Cut, Wishes

_LOG = structlog.get_logger(__name__)

#: What an act may run into; it is looked at anew afterwards.
_PASSING = (ClusterAway, NotThere, Outvoted, RowAway, RowSuperseded, OwnershipUnavailable, Superseded)
#: How often slots and synchronous standbys are looked after (seconds).
_CHORES_SECONDS = 10.0
_REMEMBERED = 50
#: Acts of a takeover, after which the next one need not wait.
_ON_AT_ONCE = frozenset({Act.CLAIM, Act.VOTE, Act.PROMOTE})
#: A standby that gets nothing for so many leases is copied anew.
_UNFED_LEASES = 3
#: Between looks whether a standby has caught up (seconds).
_CATCH_UP_SECONDS = 0.05


@dataclass(kw_only=True)
class Status:
    """What the keeper knows and does, for people and probes."""

    act: Act = Act.WAIT
    why: str = "it has not looked yet"
    fault: str = ""
    owner: str = ""
    epoch: int = 0
    owns: bool = False  # by its own lease, now
    cluster: str = "unknown"
    streaming: bool = False
    primary: bool = False
    standbys: list[dict[str, Any]] = field(default_factory=list)
    position: int = 0  # in the log: flushed by a primary, received or replayed by a standby
    #: Seconds since 1970 of the newest commit: that it made, and that it replayed as a standby; None: none.
    committed_at: float | None = None
    replayed_at: float | None = None
    cut: Cut | None = None  # a rehearsal is under way
    missing: tuple[str, ...] = ()  # whose votes the takeover that this site leads waits for
    #: The latest acts: when (seconds since 1970), which, why.
    log: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def ready(self) -> bool:
        """Whether the site does its part: it owns, or it follows."""
        return (self.act is Act.OWN and self.owns) or (self.act is Act.FOLLOW and self.streaming)


class Keeper:
    """The keeper of one site. `step` does one round; `run` goes on until told to stop."""

    def __init__(
        self,
        settings: Settings,
        store: OwnershipStore,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._cell, self._me = settings.cell, settings.region
        own_url = settings.databases[self._me]
        self._cluster = Cluster(own_url, site=self._me, cell=self._cell)
        self._row = CellRow(own_url)
        self._folder = Folder(settings.data, site=self._me, binaries=settings.binaries)
        self._wishes = Wishes(settings.data.parent)
        self._returning = Returning(settings, store, self._folder, clock)
        self._tenure = Tenure(settings.timing)
        self._watch = Watch(settings.timing)
        self._chores_at = float("-inf")
        self._override = False  # an operator has the missing votes of the takeover given up
        self._fed_at: float | None = None  # when it last got further, or began to follow
        self._replayed, self._streamed = 0, False  # at the last look
        self._opened = 0  # epoch under which the cell's processes may write
        self.status = Status()
        self._noted: tuple[Act, str] | None = None
        self.looked_at = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Look every so often until `stop` is set."""
        while not stop.is_set():
            decision = self.step()
            if decision.act in _ON_AT_ONCE and not self.status.fault:
                continue  # what follows is to be seen already, and everybody waits for it
            stop.wait(self._settings.timing.look)
        self._cluster.close()

    def step(self) -> Decision:
        """One round. What fails is told in the status, and tried again in the next one."""
        self.looked_at = time.monotonic()
        self.status.cut = self._wishes.cut(time.time())
        decision = Decision(act=Act.WAIT, why="the ownership store does not answer")
        try:
            known = self._know()
            decision = decide(known)
            self._note(decision, known)
            self._do(decision, known)
            self._told("")
        except _PASSING as fault:
            self._told(f"{type(fault).__name__}: {fault}")
        except (psycopg.Error, redis.RedisError, OSError) as fault:
            self._told(f"{type(fault).__name__}: {fault}")
        status = self.status
        acts = self._tenure.acts(status.epoch, self._clock())
        status.owns = acts and status.owner == self._me and self._opened == status.epoch
        return decision

    # --- knowing -------------------------------------------------------------------------
    def _know(self) -> Known:
        if self.status.cut is not None and self.status.cut.region == self._me:
            self._look()
            self._look_at_commits()
            raise OwnershipUnavailable("a rehearsal cuts this region off from the others")
        row = self._store.cell(self._cell)
        seen = self._clock()
        self._watch.saw(
            None if row is None else Sight(region=row.region, epoch=row.epoch, renewals=row.renewals),
            answered=seen,
        )
        promotions = [promotion_of(record) for record in self._store.promotions(self._cell)]
        look, place = self._look()
        return Known(
            cell=self._cell,
            me=self._me,
            sites=self._settings.databases.keys(),
            founder=self._settings.founder,
            row=row,
            promotions=promotions,
            look=look,
            place=place,
            votes=self._votes(row, promotions),
            may_claim=self._may_claim(row),
            override=self._override,
        )

    def _look(self) -> tuple[Look | None, Place | None]:
        try:
            look, place = self._cluster.look(), self._cluster.place()
            self.status.position = place.lsn
            return look, place
        except ClusterAway as fault:
            self.status.cluster = str(fault)
            return None, None

    def _look_at_commits(self) -> None:
        self.status.committed_at, self.status.replayed_at = self._cluster.last_commits()

    def _votes(self, row: CellOwnership | None, promotions: list[Promotion]) -> dict[str, Place]:
        self._override = False
        last = newest(promotions)
        if row is None or last is None or last.epoch == row.epoch:
            return {}
        told = self._store.votes(self._cell, epoch=row.epoch, regions=[*self._settings.databases, OPERATOR])
        self._override = OPERATOR in told
        return {region: Place.read(place) for region, place in told.items() if region != OPERATOR}

    def _may_claim(self, row: CellOwnership | None) -> bool:
        """Survivors come one after the other, so that the likely winner claims first."""
        if row is None:
            return False
        others = [site for site in self._settings.databases if site != row.region]
        turn = ranked(self._cell, row.epoch, others).index(self._me) if self._me in others else 0
        return self._watch.may_claim(self._clock(), after=turn * self._settings.timing.start / 10) is not None

    def _note(self, decision: Decision, known: Known) -> None:
        status, row, look = self.status, known.row, known.look
        if (decision.act, decision.why) != self._noted:
            self._noted = decision.act, decision.why
            _LOG.info("keeper", cell=self._cell, region=self._me, act=decision.act.value, why=decision.why)
            status.log.append((time.time(), decision.act.value, decision.why))
        status.act, status.why, status.missing = decision.act, decision.why, decision.missing
        status.owner, status.epoch = (row.region, row.epoch) if row is not None else ("", 0)
        if look is not None:
            status.cluster, status.primary = describe(look), not look.in_recovery
            status.streaming = look.streaming
        else:
            status.primary = status.streaming = False

    def _told(self, fault: str) -> None:
        if fault and fault != self.status.fault:
            _LOG.warning("keeper", cell=self._cell, region=self._me, fault=fault[:500])
        self.status.fault = fault

    # --- acting --------------------------------------------------------------------------
    def _do(self, decision: Decision, known: Known) -> None:
        row = known.row
        if decision.act is not Act.FOLLOW:
            self._fed_at = None
        if decision.act is Act.BEGIN:
            self._claim(expected=None)
            return
        if row is None:
            return
        match decision.act:
            case Act.FOUND:
                self._store.record_promotion(
                    PromotionRecord(
                        cell=self._cell, timeline=1, epoch=row.epoch, region=self._me, parent=0, fork=0
                    )
                )
            case Act.OWN:
                self._own(row)
            case Act.CLAIM:
                seen = self._watch.may_claim(self._clock())
                if seen is not None and seen.epoch == row.epoch:
                    self._claim(expected=seen.epoch, renewals=seen.renewals)
            case Act.VOTE:
                place = self._cluster.vote(row.epoch, seconds=self._settings.timing.lease)
                self._store.cast_vote(self._cell, epoch=row.epoch, region=self._me, place=place.text())
            case Act.PROMOTE:
                self._promote(row, known)
            case Act.HAND_OVER:
                self._store.claim_cell(self._cell, region=decision.whom, expected=row.epoch)
            case Act.FOLLOW if self.status.cut is not None and self.status.cut.region == row.region:
                self._fed_at = None
                self._cluster.stop_following()
            case Act.FOLLOW:
                self._chores()
                follow_owner(self._settings, self._store, self._cluster, row, known.look)
                self._look_whether_fed(row, known.look)
                if self.status.streaming:
                    self._returning.forget_tails()
            case Act.FENCE | Act.UNFENCE:
                self._tenure.lost()
                self._folder.end_server()
            case Act.STRAYED:
                self.status.why = f"{decision.why}; {self._returning.look(row)}"
            case Act.WAIT | Act.BEGIN:
                pass

    def _claim(self, *, expected: int | None, renewals: int | None = None) -> None:
        began = self._clock()
        claimed = self._store.claim_cell(self._cell, region=self._me, expected=expected, renewals=renewals)
        self._tenure.renewed(epoch=claimed.epoch, began=began)

    def _promote(self, row: CellOwnership, known: Known) -> None:
        """Takes the number of the next timeline first, so that no other cluster's is ever called the same."""
        if known.place is None:
            return
        last = newest(known.promotions)
        mine = last if last is not None and last.epoch == row.epoch else None
        record = PromotionRecord(
            cell=self._cell,
            timeline=mine.timeline if mine is not None else next_timeline(known.promotions),
            epoch=row.epoch,
            region=self._me,
            parent=known.place.line.timeline,
            fork=known.place.lsn,
        )
        self._store.record_promotion(record)
        self._cluster.take_numbers(
            [promotion.timeline for promotion in known.promotions if promotion.timeline != record.timeline]
        )
        line = self._cluster.promote(row.epoch, seconds=self._settings.timing.lease)
        if line.timeline != record.timeline:
            raise NotThere(f"timeline {line.timeline} began, and not {record.timeline}")

    def _own(self, row: CellOwnership) -> None:
        self._chores()
        target = self._wishes.handover(row.epoch, time.time())
        if target is not None:
            self._hand_over(row, target)
            return
        if not self._tenure.due(row.epoch, self._clock()):
            return
        if self._row.probe().epoch < row.epoch:
            self._take_up(row)
        probe = self._probe_and_renew(row)
        self._row.extend(
            probe, epoch=row.epoch, seconds=self._settings.timing.lease - self._settings.timing.stop
        )
        self._opened = row.epoch

    def _hand_over(self, row: CellOwnership, target: str) -> None:
        """A planned change of owner: nothing is written any more, the target has all that was, and then it
        is the owner. Where the target does not get there the cell works on here."""
        self._wishes.drop_handover()
        self._row.close(epoch=row.epoch)
        self._opened = 0
        deadline = self._clock() + self._settings.timing.stop
        # Transactions that were open have failed or committed by now, or do so before this place.
        until = self._cluster.look().replayed
        while not any(
            one.site == target and one.state == "streaming" and one.flushed >= until
            for one in self._cluster.standbys()
        ):
            if self._clock() > deadline:
                self._tenure.lost()  # the next round renews, and opens the cell again
                raise NotThere(f"{target} has not caught up: {self._me} goes on")
            time.sleep(_CATCH_UP_SECONDS)
        self._store.claim_cell(self._cell, region=target, expected=row.epoch)
        self._tenure.lost()

    def _probe_and_renew(self, row: CellOwnership) -> Probe:
        """A committed write in the cell's database, then the renewal: in this order, and counted from
        between the two."""
        probe = self._row.probe()
        began = self._clock()
        self._store.renew_cell(self._cell, region=self._me, epoch=row.epoch)
        self._tenure.renewed(epoch=row.epoch, began=began)
        return probe

    def _take_up(self, row: CellOwnership) -> None:
        """What a new owner does before anything in the cell may act under it."""
        line = self._cluster.line()
        lost = ""
        for record in sorted(self._store.promotions(self._cell), key=lambda each: each.epoch):
            if record.epoch < row.epoch:
                lost = record.region
            if record.timeline == line.timeline and record.epoch == row.epoch and line.forks:
                # Where exactly the parent was left is known only now.
                left = line.forks[-1]
                self._store.record_promotion(replace(record, parent=left.timeline, fork=left.at))
        with redis.Redis.from_url(self._settings.valkey_url, socket_timeout=5) as cache:
            cache.flushdb()  # of an earlier time as owner: what it calls loaded is not
        settled = settle_tenants(
            self._store,
            self._row,
            cell=self._cell,
            epoch=row.epoch,
            lost=lost,
            between=lambda: self._renew_if_due(row),
            passed_over=passed_over(self._settings, self._store, epoch=row.epoch, lost=lost),
        )
        _LOG.info(
            "cell taken up",
            cell=self._cell,
            region=self._me,
            epoch=row.epoch,
            tenants=settled.adopted,
            gone=len(settled.abandoned),
            fresh_leases=settled.fresh_leases,
        )

    def _look_whether_fed(self, row: CellOwnership, look: Look | None) -> None:
        """A standby that was away for so long that the owner has not kept what it needs gets nothing at all,
        and is copied anew. Only while the owner is there to copy from, and never while it replays what it has
        itself: before the end of that it does not ask for more. A receiver streams for a moment each time
        before it hears that its part of the log is gone, so one look is not enough."""
        now = self._clock()
        replayed = look.replayed if look is not None else 0
        streams = self.status.streaming and self._streamed
        self._streamed = self.status.streaming
        if streams or self._fed_at is None or replayed != self._replayed:
            self._fed_at, self._replayed = now, replayed
        elif now - self._fed_at > _UNFED_LEASES * self._settings.timing.lease:
            owner = Cluster(self._settings.databases[row.region], site=row.region, cell=self._cell)
            try:
                if not owner.look().in_recovery:
                    _LOG.warning("site copied anew", cell=self._cell, region=self._me, owner=row.region)
                    self._folder.discard()
                    self._folder.end_server()
            finally:
                owner.close()
            self._fed_at = now

    def _renew_if_due(self, row: CellOwnership) -> None:
        if self._tenure.due(row.epoch, self._clock()):
            self._probe_and_renew(row)

    def _chores(self) -> None:
        if self._clock() >= self._chores_at:
            self._cluster.prepare_for_others(self._settings.others)
            self._look_at_commits()
            self._chores_at = self._clock() + _CHORES_SECONDS
        if self.status.primary:
            self.status.standbys = [
                {"site": one.site, "state": one.state, "behind_bytes": one.behind, "sync": one.sync}
                for one in self._cluster.standbys()
            ]
