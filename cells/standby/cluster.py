"""One site's running cluster: what it does, whom it follows, votes, promotion. Blocking.

All of it is asked over SQL as a superuser, so that whoever keeps a site need not be on its machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cells.named_sql import load
from cells.standby.lines import FIRST, Line, Place, format_lsn, parse_lsn

_SQL = load(Path(__file__).parent / "sql")
#: What the startup process waits for when it has replayed all there is.
_NOTHING_TO_REPLAY = frozenset({"RecoveryWalStream", "RecoveryRetrieveRetryInterval"})
#: A vote's place must look the same that often in a row before it counts.
_STEADY_LOOKS = 5
_LOOK_SECONDS = 0.05


class ClusterAway(Exception):
    """The cluster does not answer; nothing is known."""


class Outvoted(Exception):
    """The cluster has voted for a later epoch than the one it is asked to serve."""


class NotThere(Exception):
    """The cluster is not in the state that the act needs, or does not get there in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a cluster does at one instant."""

    in_recovery: bool
    replayed: int  # of a primary: flushed
    received: int  # 0 where nothing was received since its start
    receiver: bool  # a WAL receiver is there
    streaming: bool  # and streams
    waits_for: str  # of the startup process
    voted_epoch: int  # 0: never voted
    followed: str  # `<site>@<epoch>`; empty: nobody was named
    follows: bool  # a primary is configured


@dataclass(frozen=True, kw_only=True, slots=True)
class Standby:
    """A standby as its primary sees it."""

    site: str
    state: str
    flushed: int
    behind: int  # bytes
    sync: str  # `quorum`: may confirm commits that wait for a standby


def slot_of(site: str) -> str:
    """The slot that keeps the log for a site, on every cluster of its cell."""
    return "site_" + re.sub(r"[^a-z0-9]", "_", site.lower())


def conninfo_for(url: str, *, site: str) -> str:
    """How `site` connects to the primary at `url`, so that it is known there by its name."""
    given = conninfo_to_dict(url)
    parameters = {
        name: str(value)
        for name, value in given.items()
        if value is not None and name not in ("dbname", "options")
    }
    parameters |= {"application_name": site, "connect_timeout": "3", "tcp_user_timeout": "10000"}
    return make_conninfo("", **parameters)


class Cluster:
    """The cluster of `site`, reached at `url` (of any of its databases, as a superuser)."""

    def __init__(self, url: str, *, site: str, cell: str) -> None:
        self._url = urlunsplit(urlsplit(url)._replace(path="/postgres"))
        self.site = site
        self._cell = cell
        self._kept: psycopg.Connection[tuple[Any, ...]] | None = None

    def close(self) -> None:
        """Lets go of the connection that was kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """One connection, kept: somebody looks twice a second. A broken one is made anew the next time."""
        try:
            if self._kept is None or self._kept.closed:
                self._kept = self._connect(statement_ms=5_000)
            yield self._kept
        except psycopg.OperationalError as fault:
            self.close()
            raise ClusterAway(f"{self._cell} in {self.site}: {str(fault).strip()}") from fault

    def _connect(self, *, statement_ms: int) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=3,
            application_name=f"clockhouse-site-{self._cell}",
            options=f"-c statement_timeout={statement_ms} -c synchronous_commit=local",
        )

    def look(self) -> Look:
        """What it does now."""
        with self._connected() as connection:
            return _look(connection)

    def place(self) -> Place:
        """How far it has come."""
        with self._connected() as connection:
            look = _look(connection)
            return Place(line=_line(connection), lsn=max(look.received, look.replayed))

    def line(self) -> Line:
        """The timeline it is on, and how that came."""
        with self._connected() as connection:
            return _line(connection)

    def prepare_for_others(self, others: Collection[str]) -> None:
        """A slot for each other site, and which of them may confirm commits that wait for one. The same
        on every site and at any time, so that whoever is promoted need not be told."""
        wanted = "ANY 1 (" + ", ".join(f'"{site}"' for site in sorted(others)) + ")" if others else ""
        with self._connected() as connection:
            there = {row[0]: row for row in connection.execute(_named("slots"))}
            for slot in map(slot_of, others):
                if slot in there and there[slot][2] and not there[slot][1]:
                    connection.execute(_named("slot_drop"), {"slot": slot})
                    del there[slot]
                if slot not in there:
                    connection.execute(_named("slot_create"), {"slot": slot})
            if _value(connection, "synchronous_now") != wanted:
                _set(connection, "synchronous", wanted)
                _value(connection, "reload")

    def follow(self, primary_url: str, *, primary: str, epoch: int) -> None:
        """Streams from the primary of `epoch` from now on, by a reload. Nothing happens where it does so
        already. `Outvoted` where it has voted for a later epoch."""
        name = f"{primary}@{epoch}"
        with self._connected() as connection:
            look = _look(connection)
            if not look.in_recovery:
                raise NotThere(f"{self.site} is a primary itself")
            if look.voted_epoch > epoch:
                raise Outvoted(f"{self.site} has voted for epoch {look.voted_epoch}, which is after {epoch}")
            if look.followed == name and look.follows:
                return
            _set(connection, "follow_slot", slot_of(self.site))
            _set(connection, "follow_named", name)
            _set(connection, "follow_whom", conninfo_for(primary_url, site=self.site))
            _value(connection, "reload")

    def vote(self, epoch: int, *, seconds: float) -> Place:
        """Stops following for good, replays what it has, and says how far that is. From the first
        write on no primary of an epoch before this one is followed any more, whatever crashes."""
        with self._connected() as connection:
            look = _look(connection)
            if not look.in_recovery:
                raise NotThere(f"{self.site} is a primary: it can vote once it was started as a standby")
            if look.voted_epoch > epoch:
                raise Outvoted(f"{self.site} has voted for epoch {look.voted_epoch} already")
            if look.voted_epoch < epoch:
                _set(connection, "vote_persist", str(epoch))
                _value(connection, "reload")
        self._stop_following()
        return self._steady_place(seconds)

    def last_commits(self) -> tuple[float | None, float | None]:
        """When the newest commits were made (seconds since 1970, by the clock of who made them): this
        primary's own, and the newest it replayed as a standby, also before it was promoted. None: none."""
        with self._connected() as connection:
            row = connection.execute(_named("last_commits")).fetchone() or (None, None)
            return row[0], row[1]

    def stop_following(self) -> None:
        """Receives nothing from now on, until `follow`. Nothing happens where it follows nobody."""
        if self.look().follows:
            self._stop_following()

    def _stop_following(self) -> None:
        with self._connected() as connection:
            _set(connection, "follow_named", "")
            _set(connection, "follow_whom", "")
            _value(connection, "reload")

    def _steady_place(self, seconds: float) -> Place:
        """The place once nothing arrives and nothing is left to replay. Seen several times over: a
        receiver that was just being started when the settings changed may still appear, and ends at once."""
        seen: list[Look] = []

        def settled() -> bool:
            look = self.look()
            idle = not look.receiver and not look.follows and look.waits_for in _NOTHING_TO_REPLAY
            seen[:] = [*seen, look][-_STEADY_LOOKS:] if idle and (not seen or look == seen[-1]) else []
            return len(seen) == _STEADY_LOOKS

        if not _until(settled, seconds):
            raise NotThere(f"{self.site} has not come to rest within {seconds:.0f} s: {self.look()}")
        return Place(line=self.line(), lsn=max(seen[-1].received, seen[-1].replayed))

    def take_numbers(self, timelines: Collection[int]) -> None:
        """Sees to it that a promotion begins a timeline behind all of these. PostgreSQL takes the first
        number it has no history file of: a timeline begun elsewhere gets one here."""
        with self._connected() as connection:
            own = _line(connection)
            known = {int(row[0], 16) for row in connection.execute(_named("histories"))}
            known |= {own.timeline, *(fork.timeline for fork in own.forks), FIRST}
            folder = str(_value(connection, "data_directory"))
            for timeline in sorted(set(timelines) - known):
                _compose(
                    connection,
                    "history_place",
                    reason="taken at another site",
                    path=f"{folder}/pg_wal/{timeline:08X}.history",
                )

    def promote(self, epoch: int, *, seconds: float) -> Line:
        """Becomes the primary under `epoch`, for which it has voted; its new line."""
        with self._connected() as connection:
            look = _look(connection)
            if not look.in_recovery:
                return _line(connection)
            if look.voted_epoch != epoch or look.follows:
                raise Outvoted(f"{self.site} is bound to epoch {look.voted_epoch}, not to {epoch}")
            with self._connect(statement_ms=int(seconds * 1000) + 1_000) as patient:
                if not _value(patient, "promote", {"seconds": max(1, int(seconds))}):
                    raise NotThere(f"{self.site} was not promoted within {seconds:.0f} s")
            return _line(connection)

    def standbys(self) -> list[Standby]:
        """Who follows this primary."""
        with self._connected() as connection:
            return [
                Standby(
                    site=row[0],
                    state=row[1] or "",
                    flushed=parse_lsn(row[2]) if row[2] else 0,
                    behind=row[3],
                    sync=row[4] or "",
                )
                for row in connection.execute(_named("standbys"))
            ]


def _look(connection: psycopg.Connection[tuple[Any, ...]]) -> Look:
    row = connection.execute(_named("look")).fetchone()
    if row is None:
        raise ClusterAway("no answer")
    return Look(
        in_recovery=row[0],
        replayed=parse_lsn(row[1]) if row[1] else 0,
        received=parse_lsn(row[2]) if row[2] else 0,
        receiver=row[3],
        streaming=row[8] == "streaming",
        waits_for=row[4] or "",
        voted_epoch=row[5],
        followed=row[6],
        follows=row[7],
    )


def _line(connection: psycopg.Connection[tuple[Any, ...]]) -> Line:
    name = str(_value(connection, "timeline"))
    text = _value(connection, "history", {"name": f"{name}.history"})
    return Line.parse(int(name, 16), str(text or ""))


def _named(name: str) -> bytes:
    return _SQL[name]


def _value(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, values: Mapping[str, object] | None = None
) -> object:
    row = connection.execute(_named(name), values).fetchone()
    return None if row is None else row[0]


def _set(connection: psycopg.Connection[tuple[Any, ...]], name: str, value: str) -> None:
    _compose(connection, name, value=value)


def _compose(connection: psycopg.Connection[tuple[Any, ...]], name: str, **values: str) -> None:
    """A statement that takes no parameters: its values are written into it as literals."""
    text: LiteralString = _named(name).decode()  # from our own files
    connection.execute(sql.SQL(text).format(**{key: sql.Literal(value) for key, value in values.items()}))


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def describe(look: Look) -> str:
    """A cluster in one line, for status pages."""
    if not look.in_recovery:
        return f"primary, flushed to {format_lsn(look.replayed)}"
    how = "streaming" if look.streaming else "not streaming"
    return f"standby of {look.followed or 'nobody'}, {how}, at {format_lsn(look.replayed)}"
