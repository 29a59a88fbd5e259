"""What operators do to tenants through the router, for the control plane's audit log.

An act is on disk before the request is forwarded, or the request is refused: nobody acts for a tenant
unseen. It is told to Django until that has it; its id makes it one event however often it is told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from cells.domain.ids import fresh_id
from controlplane.routing.control import CALL_FAULTS, ControlPlane
from controlplane.routing.disk import flush_folder, write_atomically

log = logging.getLogger(__name__)

_LARGEST_CALL = 500
_MALFORMED = 422
_LONGEST_PATH = 1_000
#: What Django refuses is kept for people, at most twice this much (bytes).
_MOST_REFUSED = 1024 * 1024


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an operator's key for a tenant."""

    act_id: uuid.UUID
    at_ms: int
    actor: str  # `key:<id>`
    tenant_id: str
    method: str
    path: str
    request_id: str
    client: str


_ACT = msgspec.json.Decoder(Act)


class OperatorActs:
    """The acts of this incarnation that Django does not have yet, and those earlier ones left behind."""

    def __init__(self, folder: Path, *, host: str, now_ms: Callable[[], int]) -> None:
        self._folder = folder / "acts"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._spool = self._folder / f"{host}.jsonl"
        self._now_ms = now_ms
        self._waiting: dict[uuid.UUID, Act] = {}
        #: Held by the one thread that writes the spool, and what waits changes with it.
        self._writing = threading.Lock()
        #: Whether this process knows that the spool's name in the folder is on disk, too.
        self._named = False
        self._left: list[Path] = sorted(self._folder.glob("*.jsonl"))
        for path in self._left:
            self._take_over(path)

    @property
    def untold(self) -> int:
        """Acts Django does not have yet."""
        return len(self._waiting)

    async def note(
        self, *, actor: str, tenant_id: str, method: str, path: str, request_id: str, client: str
    ) -> None:
        """Keep an act: it is on disk when this returns. Raises `OSError` where it cannot be written down.
        A slow disk keeps this request waiting, and no other."""
        now_ms = self._now_ms()
        act = Act(
            act_id=fresh_id(now_ms=now_ms, entropy=os.urandom(10)),
            at_ms=now_ms,
            actor=actor,
            tenant_id=tenant_id,
            method=method,
            path=path[:_LONGEST_PATH],
            request_id=request_id,
            client=client,
        )
        await asyncio.to_thread(self._write, act)

    def _write(self, act: Act) -> None:
        with self._writing:
            descriptor = os.open(self._spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, msgspec.json.encode(act) + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not self._named:
                flush_folder(self._folder)  # the spool may be a new name in it
                self._named = True
            self._waiting[act.act_id] = act

    async def run(self, stop: asyncio.Event, control: ControlPlane, *, every_s: float = 1.0) -> None:
        """Tell Django each second until `stop` is set, and once more then."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(every_s):
                    await stop.wait()
            except TimeoutError:
                pass  # the interval is over
            await self.tell(control)

    async def tell(self, control: ControlPlane) -> int:
        """Tell what is waiting; how many Django has now."""
        told = 0
        while self._waiting:
            acts = list(self._waiting.values())[:_LARGEST_CALL]
            done = await self._tell(control, acts)
            if not done:
                break
            told += done
        if told:
            await asyncio.to_thread(self._shrink)
        return told

    async def _tell(self, control: ControlPlane, acts: list[Act]) -> int:
        try:
            status, _ = await control.post("/internal/operator-acts", msgspec.json.encode({"acts": acts}))
        except CALL_FAULTS as fault:
            log.debug("operators' acts not told: %r", fault)
            return 0
        if status == _MALFORMED and len(acts) > 1:
            return sum([await self._tell(control, [act]) for act in acts])
        if status == _MALFORMED:
            log.error("an operator's act was refused: %s", acts[0])
            self._keep_refused(acts[0])
        elif status != 200:
            log.warning("operators' acts not told: status %s", status)
            return 0
        for act in acts:
            self._waiting.pop(act.act_id, None)
        return len(acts)

    def _keep_refused(self, act: Act) -> None:
        """In `refused.json`; a full one becomes `refused.json.old`, in the place of the one before."""
        path = self._folder / "refused.json"
        if path.exists() and path.stat().st_size >= _MOST_REFUSED:
            path.replace(path.with_name("refused.json.old"))
        with path.open("ab") as file:
            file.write(msgspec.json.encode(act) + b"\n")

    def _shrink(self) -> None:
        """Forget on disk what Django has."""
        with self._writing:
            self._rewrite()

    def _rewrite(self) -> None:
        try:
            if self._waiting:
                lines = [msgspec.json.encode(act) + b"\n" for act in self._waiting.values()]
                write_atomically(self._spool, b"".join(lines))
            else:
                self._named = False
                self._spool.unlink(missing_ok=True)
            for path in self._left:
                if path != self._spool:
                    path.unlink(missing_ok=True)
            self._left = []
        except OSError as fault:
            log.error("the spool of operators' acts was not written: %r", fault)

    def _take_over(self, path: Path) -> None:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as fault:
            log.error("a spool of operators' acts is not readable: %s: %r", path, fault)
            return
        for line in lines:
            try:
                act = _ACT.decode(line)
            except msgspec.MsgspecError as fault:  # the last line of a crash may be half of one
                log.error("an operator's act is not readable: %s: %r", path, fault)
                continue
            self._waiting[act.act_id] = act
