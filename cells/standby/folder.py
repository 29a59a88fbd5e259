"""A site's cluster while it is not running: base backup, rewinding, and how it shall start.

`python -m cells.standby` does one of these and ends, before the server is started: as the user that owns
the folder around the data, or as root, who runs PostgreSQL's programs as that user. What is asked here
stands in the folder itself: settings that ALTER SYSTEM wrote, the control file, history files.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cells.standby.cluster import conninfo_for, slot_of
from cells.standby.lines import FIRST, Line, Place, parse_lsn

_SETTING = re.compile(r"^\s*([\w.\"]+)\s*=\s*'((?:[^']|'')*)'", re.MULTILINE)
_VOTED, _FOLLOWED = "clockhouse.voted_epoch", "clockhouse.followed"
_AUTO = "postgresql.auto.conf"
_SIGNAL = "standby.signal"
#: Who root is to PostgreSQL's programs where the files are root's own.
_NOBODY = 65534


class CannotPrepare(Exception):
    """The folder cannot be made ready; the message says why."""


class Folder:
    """The data folder of `site`; `binaries` holds pg_basebackup, pg_rewind and pg_controldata."""

    def __init__(self, data: Path, *, site: str, binaries: Path) -> None:
        self._data = data
        self._site = site
        self._binaries = binaries

        #: There while files of the cluster are replaced in place: what a crash leaves then is no cluster.
        self._rewinding = data.parent / "rewinding"

    @property
    def exists(self) -> bool:
        """Whether there is a whole cluster."""
        return (self._data / "PG_VERSION").exists() and not self._rewinding.exists()

    def voted_epoch(self) -> int:
        """The epoch this site has voted for; 0 if it never has."""
        return int(self._settings().get(_VOTED) or 0)

    def followed(self) -> str:
        """`<site>@<epoch>` of the primary it follows or was told to; empty for none."""
        return self._settings().get(_FOLLOWED, "")

    def place(self) -> Place:
        """Where the cluster stopped. After a crash it has at least this."""
        told = self._control()
        timeline = int(told["Latest checkpoint's TimeLineID"])
        recovered = int(told.get("Min recovery ending loc's timeline") or 0)
        at = parse_lsn(told["Latest checkpoint location"])
        if recovered >= timeline:
            timeline, at = recovered, max(at, parse_lsn(told["Minimum recovery ending location"]))
        return Place(line=self.line(timeline), lsn=at)

    def line(self, timeline: int) -> Line:
        """How a timeline came, by this folder's own history file."""
        if timeline == FIRST:
            return Line()
        path = self._data / "pg_wal" / f"{timeline:08X}.history"
        return Line.parse(timeline, path.read_text() if path.exists() else "")

    def fence(self) -> None:
        """It starts read-only, following nobody: no vacuum, no subscription, no write of ours can begin."""
        self._write_settings({"primary_conninfo": "", _FOLLOWED: ""})
        self._touch_signal()

    def unfence(self) -> None:
        """It starts as the primary it was."""
        self._write_settings({"primary_conninfo": "", _FOLLOWED: ""})
        (self._data / _SIGNAL).unlink(missing_ok=True)

    def end_server(self) -> None:
        """Ends the server at once, as a crash would: nothing more is written or sent. Whoever keeps it
        running makes the folder ready and starts it anew."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            if Path(f"/proc/{pid}/cwd").resolve() != self._data.resolve():
                return  # another process has that number now
            os.kill(pid, signal.SIGQUIT)
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            return  # it is down already

    @property
    def _wish(self) -> Path:
        return self._data.parent / "rejoin"

    def wish_to_rejoin(self, primary: str, epoch: int) -> None:
        """Before its next start this cluster becomes a standby of that primary, whatever only it has."""
        self._wish.write_text(f"{primary}@{epoch}")

    def wishes_to_rejoin(self, primary: str, epoch: int) -> bool:
        """Whether that was said."""
        return self._wish.exists() and self._wish.read_text() == f"{primary}@{epoch}"

    def discard(self) -> None:
        """What is here is of no use any more: before the next start a base backup takes its place."""
        self._rewinding.touch()

    def clone(self, primary_url: str, *, primary: str, epoch: int, sync: bool = True) -> None:
        """A base backup of the primary of `epoch`, made aside and renamed, in place of what is there. It
        starts as a standby of that primary."""
        self._refuse_older(epoch)
        aside = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self._data.parent))
        try:
            self._give(aside)
            self._run(
                [
                    *("pg_basebackup", f"--pgdata={aside}", "--wal-method=stream", "--checkpoint=fast"),
                    *([] if sync else ["--no-sync"]),
                    *("--dbname", _without_password(primary_url, site=self._site)),
                ],
                primary_url,
            )
            copy = Folder(aside, site=self._site, binaries=self._binaries)
            copy.become_standby(primary_url, primary=primary, epoch=epoch)
            if self._data.exists():
                shutil.rmtree(self._data)
            aside.rename(self._data)
            self._rewinding.unlink(missing_ok=True)
            self._wish.unlink(missing_ok=True)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def rejoin(
        self, primary_url: str, *, primary: str, epoch: int, sync: bool = True, rewind: bool = True
    ) -> str:
        """Becomes a standby of the primary of `epoch`, whatever this folder holds: by taking back what the
        primary does not have where that can be done, else (or where `rewind` is not to be trusted) by a base
        backup. Says which."""
        if rewind and self.exists and self._rewound(primary_url, primary=primary, epoch=epoch, sync=sync):
            return "rewound"
        self.clone(primary_url, primary=primary, epoch=epoch, sync=sync)
        return "copied"

    def _rewound(self, primary_url: str, *, primary: str, epoch: int, sync: bool) -> bool:
        self._refuse_older(epoch)
        self._rewinding.touch()
        # Where it crashed as a primary it is brought to a clean stop first, which no standby can be alone.
        (self._data / _SIGNAL).unlink(missing_ok=True)
        try:
            self._run(
                [
                    *("pg_rewind", f"--target-pgdata={self._data}"),
                    *([] if sync else ["--no-sync"]),
                    *("--source-server", _without_password(primary_url, site=self._site, dbname="postgres")),
                ],
                primary_url,
            )
        except CannotPrepare:
            return False
        self.become_standby(primary_url, primary=primary, epoch=epoch)
        self._rewinding.unlink()
        self._wish.unlink(missing_ok=True)
        return True

    def become_standby(self, primary_url: str, *, primary: str, epoch: int) -> None:
        """It starts as a standby of that primary."""
        self._write_settings(
            {
                "primary_conninfo": conninfo_for(primary_url, site=self._site),
                "primary_slot_name": slot_of(self._site),
                _VOTED: str(max(epoch, 0)),
                _FOLLOWED: f"{primary}@{epoch}",
            }
        )
        self._touch_signal()

    def _touch_signal(self) -> None:
        (self._data / _SIGNAL).touch(mode=0o600)
        self._give(self._data / _SIGNAL)

    def _refuse_older(self, epoch: int) -> None:
        if self.voted_epoch() > epoch:
            raise CannotPrepare(
                f"{self._site} has voted for epoch {self.voted_epoch()};"
                f" it cannot go back to one of epoch {epoch}"
            )

    def _settings(self) -> dict[str, str]:
        path = self._data / _AUTO
        text = path.read_text() if path.exists() else ""
        return {name.strip('"'): value.replace("''", "'") for name, value in _SETTING.findall(text)}

    def _write_settings(self, changes: Mapping[str, str]) -> None:
        """Sets what ALTER SYSTEM would set in a running server; the file is replaced as a whole."""
        path = self._data / _AUTO
        kept = {name: value for name, value in self._settings().items() if name not in changes}
        settings = {**kept, **changes}
        quote = "'"
        lines = [f"{name} = '{value.replace(quote, quote * 2)}'\n" for name, value in settings.items()]
        aside = path.with_name(f"{_AUTO}.new")
        with os.fdopen(os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        self._give(aside)
        aside.replace(path)

    def _control(self) -> dict[str, str]:
        said = self._run(["pg_controldata", str(self._data)])
        pairs = (line.partition(":") for line in said.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}

    def _run(self, command: Sequence[str], url: str | None = None) -> str:
        password = conninfo_to_dict(url).get("password") if url is not None else None
        program = [str(self._binaries / command[0]), *command[1:]]
        credentials: dict[str, object] = {}
        if os.geteuid() == 0:  # which these programs refuse to be
            owner = self._data.parent.stat()
            if owner.st_uid == 0:
                program = ["unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", *program]
            else:
                credentials = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        done = subprocess.run(
            program,
            **credentials,  # type: ignore[call-overload]
            env={**os.environ, "LC_ALL": "C", **({"PGPASSWORD": str(password)} if password else {})},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise CannotPrepare(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
        return str(done.stdout)

    def _give(self, path: Path) -> None:
        """Has root's work belong to the owner."""
        if os.geteuid() == 0:
            owner = self._data.parent.stat()
            os.chown(path, owner.st_uid, owner.st_gid)


def _without_password(url: str, *, site: str, **more: str) -> str:
    """A connection string for a command line, which everybody can read."""
    parameters = {
        name: str(value)
        for name, value in conninfo_to_dict(conninfo_for(url, site=site)).items()
        if name != "password"
    }
    return make_conninfo("", **parameters, **more)
