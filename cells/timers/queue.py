"""The cell's cache of waiting things on Valkey: buckets, the release gate, fair queues."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cells.contract import SHARDS
from cells.ports import Clock, Member, TenantConfig
from cells.pulling import QueueId
from cells.timers import forgetting
from cells.timers import members as packing
from cells.timers.boards import Boards
from cells.timers.keys import Keys, minute_label
from cells.timers.signals import Signals
from cells.timers.valkey import Valkey

#: How far ahead of now buckets are loaded, and how far ahead writers add: further, so that a
#: member committed while its minute is being loaded is in one of the two.
LOADED_MINUTES = 120
ADDED_MINUTES = LOADED_MINUTES + 5
#: Members per script call; Valkey serves nobody else meanwhile (about 2 ms).
_CHUNK = 1000
#: An empty class is not asked again before it is announced, or after this long (seconds).
_QUIET_SECONDS = 1.0
#: The generation is asked for at most this often (seconds).
_GENERATION_SECONDS = 0.5
_LOADING_MS = 30_000
_encode_queues = msgspec.json.Encoder().encode
_decode_queues = msgspec.json.Decoder(list[QueueId]).decode
_ALL_SHARDS = frozenset(range(SHARDS))
_ALL_LOADED = b"\xff" * (SHARDS // 8)
#: For a tenant whose quota no dispatcher has told Valkey yet.
DEFAULT_RATE = TenantConfig().job_runs_per_second


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """What one wake did."""

    by_class: tuple[int, int, int, int]  # members released
    held: int  # members held back past a quota
    left: bool  # more is due than one call may take
    next_due_ms: int | None  # None: nothing in this minute and the next
    oldest_due_ms: int | None  # of what came out of buckets
    tenants_held: int  # tenants and classes past their quota

    @property
    def total(self) -> int:
        return sum(self.by_class)


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """One tenant at the gate."""

    passed: int  # members, since they are counted
    queued: int


class ValkeyQueue(Boards):
    """Implements `ports.Queue`; dispatchers, loaders and sweepers use the rest.

    One instance per process; `wait_ready` has one waiter. Every method raises `Retryable` while
    the engine is away.
    """

    def __init__(self, url: str, *, cell: str, clock: Clock):
        self.keys = Keys(cell)
        self._clock = clock
        self._valkey = Valkey(url, self.keys.prefix)
        self._signals = Signals(url, self.keys)
        self._signals.on_ready(self._heard_ready)
        self._ready = asyncio.Event()
        self._announced = [0, 0, 0, 0]  # messages heard, per class
        self._quiet_until = [0.0, 0.0, 0.0, 0.0]
        self._generation = ""
        self._generation_asked = -_GENERATION_SECONDS

    async def open(self) -> None:
        """Begin to listen for signals. The engine may still be away."""
        self._signals.open()

    async def close(self) -> None:
        await self._signals.close()
        await self._valkey.close()

    # --- ports.Queue -----------------------------------------------------------------
    async def add(self, members: Sequence[Member]) -> None:
        limit = self._clock.now_ms() + ADDED_MINUTES * 60_000
        await self._put([m for m in members if m.due_ms < limit], careful=False)

    async def remove(self, members: Sequence[Member]) -> None:
        for start in range(0, len(members), _CHUNK):
            await self._valkey.script("remove", *_bucket_args(members[start : start + _CHUNK]))

    async def pop(
        self, *, priority: int, limit: int, but_not: Collection[uuid.UUID] = ()
    ) -> Sequence[Member]:
        if limit <= 0 or self._quiet_until[priority] > self._clock.monotonic():
            return ()
        announced = self._announced[priority]
        blob: bytes = await self._valkey.script("pop", int(priority), limit, *(t.bytes for t in but_not))
        members = packing.unpack_popped(blob)
        # Only what we would hear about may be left unasked; a message that came meanwhile counts.
        if (
            len(members) < limit
            and not but_not
            and self._signals.subscribed
            and self._announced[priority] == announced
        ):
            self._quiet_until[priority] = self._clock.monotonic() + _QUIET_SECONDS
        return members

    async def forget_tenant(self, tenant_id: uuid.UUID) -> int:
        """Removes all that is here of a tenant; how many keys, members and fields."""
        return await forgetting.forget(self._valkey, self.keys.prefix, tenant_id)

    async def refund(self, members: Sequence[Member]) -> None:
        if not members:
            return
        counts = Counter((m.priority, m.tenant_id.bytes) for m in members)
        args = [part for (priority, tenant), n in counts.items() for part in (int(priority), tenant, n)]
        await self._valkey.script("refund", self._clock.now_ms(), DEFAULT_RATE, *args)

    async def wait_ready(self, *, timeout: float) -> None:
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return
        self._ready.clear()

    async def announce(self, queues: Sequence[QueueId]) -> None:
        if queues:
            await self._valkey.command("PUBLISH", self.keys.tasks, _encode_queues(list(queues)))

    def on_tasks(self, tell: Callable[[Sequence[QueueId] | None], None]) -> None:
        self._signals.on_tasks(lambda said: tell(None if said is None else _decode_queues(said)))

    # --- loading ---------------------------------------------------------------------
    async def restore(self, members: Sequence[Member]) -> int:
        """`add` for members that may be held or queued already: those stay as they are. How many
        were nowhere."""
        return await self._put(members, careful=True)

    async def generation(self) -> str:
        """Names the buckets' present life. When Valkey was emptied or restarted, a new one begins
        here: nothing counts as loaded any more."""
        now = self._clock.monotonic()
        if now - self._generation_asked < _GENERATION_SECONDS:
            return self._generation
        held, info = await self._valkey.commands(("GET", self.keys.generation), ("INFO", "server"))
        run_id = info["run_id"]
        seen = (held or b"").decode()
        if not seen.startswith(f"{run_id}:"):
            fresh = f"{run_id}:{secrets.token_hex(4)}"
            seen = (await self._valkey.script("renew", seen, fresh)).decode()
        self._generation = seen.rpartition(":")[2]
        self._generation_asked = now
        return self._generation

    async def not_loaded(self, generation: str, minutes: Sequence[int]) -> list[frozenset[int]]:
        """Per minute (since the epoch): the shards that nobody has loaded in this generation."""
        marks = await self._valkey.command("MGET", *(self.keys.loaded(generation, m) for m in minutes))
        return [_unmarked(mark) for mark in marks]

    async def mark_loaded(self, generation: str, minute: int, shards: Collection[int]) -> None:
        """The minute's members of these shards are in their buckets."""
        key, expires = self.keys.loaded(generation, minute), (minute + 10) * 60
        if len(shards) == SHARDS:
            await self._valkey.command("SET", key, _ALL_LOADED, "EXAT", expires)
            return
        await self._valkey.commands(
            *(("SETBIT", key, shard, 1) for shard in shards), ("EXPIREAT", key, expires)
        )

    async def begin_load(self, generation: str, minute: int) -> bool:
        """Whether the caller may load the minute; no one else does for half a minute."""
        key = self.keys.loading(generation, minute)
        return bool(await self._valkey.command("SET", key, 1, "NX", "PX", _LOADING_MS))

    async def give_up_load(self, generation: str, minute: int) -> None:
        """The load failed: anybody may begin it."""
        await self._valkey.command("DEL", self.keys.loading(generation, minute))

    # --- dispatching -----------------------------------------------------------------
    def on_wake(self, tell: Callable[[int], None]) -> Callable[[], None]:
        """`tell(due_ms)` when a bucket got a nearer head; 0 after an interruption. Call what is
        returned to hear no more."""
        return self._signals.on_wake(tell)

    async def release(
        self, *, now_ms: int, shards: Collection[int], budget: int, fresh_after_ms: int | None
    ) -> Released:
        """One wake: let what is due in these shards through the gate (see lua/release.lua)."""
        answer = await self._valkey.script(
            "release",
            now_ms,
            "*" if len(shards) == SHARDS else _shard_string(shards),
            budget,
            DEFAULT_RATE,
            "" if fresh_after_ms is None else fresh_after_ms,
        )
        critical, high, default, low, held, left, next_due, oldest, tenants_held = answer
        return Released(
            by_class=(critical, high, default, low),
            held=held,
            left=bool(left),
            next_due_ms=next_due if next_due >= 0 else None,
            oldest_due_ms=oldest if oldest >= 0 else None,
            tenants_held=tenants_held,
        )

    async def put_rates(self, rates: Mapping[uuid.UUID, int], *, gone: Iterable[uuid.UUID] = ()) -> None:
        """Tell the gate tenants' releases per second, and which tenants left."""
        commands: list[tuple[object, ...]] = []
        if rates:
            pairs = [part for tenant, rate in rates.items() for part in (tenant.bytes, rate)]
            commands.append(("HSET", self.keys.rates, *pairs))
        names = [tenant.bytes for tenant in gone]
        if names:
            commands += [("HDEL", self.keys.rates, *names), ("HDEL", self.keys.gate, *names)]
        if commands:
            await self._valkey.commands(*commands)

    async def put_delayed(self, delayed: Collection[uuid.UUID], *, gone: Iterable[uuid.UUID] = ()) -> None:
        """Tell the gate whose LOW work waits for its budget, and whose does no longer."""
        commands: list[tuple[object, ...]] = []
        if delayed:
            pairs = [part for tenant in delayed for part in (tenant.bytes, 1)]
            commands.append(("HSET", self.keys.delayed, *pairs))
        names = [tenant.bytes for tenant in gone]
        if names:
            commands.append(("HDEL", self.keys.delayed, *names))
        if commands:
            await self._valkey.commands(*commands)

    async def passage(self, tenants: Collection[uuid.UUID]) -> dict[uuid.UUID, Passage]:
        """How many members of these tenants passed the gate since they are counted, and how many are
        queued. In one round trip."""
        if not tenants:
            return {}
        names = [tenant.bytes for tenant in tenants]
        keys = [self.keys.queue(priority, name) for name in names for priority in range(4)]
        passed, *queued = await self._valkey.commands(
            ("HMGET", self.keys.passed, *names), *(("ZCARD", key) for key in keys)
        )
        return {
            tenant: Passage(passed=int(count or 0), queued=sum(queued[4 * i : 4 * i + 4]))
            for i, (tenant, count) in enumerate(zip(tenants, passed, strict=True))
        }

    async def put_room(self, limits: Mapping[uuid.UUID, int], *, gone: Iterable[uuid.UUID] = ()) -> None:
        """Tell the gate up to which number of passed members tenants may go, and who need not be
        counted any more."""
        commands: list[tuple[object, ...]] = []
        if limits:
            pairs = [part for tenant, limit in limits.items() for part in (tenant.bytes, limit)]
            commands.append(("HSET", self.keys.room, *pairs))
        names = [tenant.bytes for tenant in gone]
        if names:
            commands += [("HDEL", self.keys.room, *names), ("HDEL", self.keys.passed, *names)]
        if commands:
            await self._valkey.commands(*commands)

    async def depths(self) -> tuple[list[int], int]:
        """Members waiting in the queue of each class, and how many tenants and classes are past
        their quota. Cheap."""
        *queued, held = await self._valkey.commands(
            *(("HLEN", self.keys.released(priority)) for priority in range(4)),
            ("ZCARD", self.keys.held_at),
        )
        return queued, held

    # --- inside ----------------------------------------------------------------------
    async def _put(self, members: Sequence[Member], *, careful: bool) -> int:
        added = 0
        for start in range(0, len(members), _CHUNK):
            args = _bucket_args(members[start : start + _CHUNK])
            added += await self._valkey.script("add", self._clock.now_ms(), int(careful), *args)
        return added

    def _heard_ready(self, classes: int) -> None:
        for priority in range(4):
            if classes >> priority & 1:
                self._announced[priority] += 1
                self._quiet_until[priority] = 0.0
        self._ready.set()


def _bucket_args(members: Sequence[Member]) -> list[int | str | bytes]:
    """Arguments of add.lua and remove.lua."""
    args: list[int | str | bytes] = []
    for (priority, minute), shards in packing.by_bucket(members).items():
        # An enum's member would be sent by its name.
        args += (int(priority), minute_label(minute), minute, len(shards))
        for shard, flat in shards.items():
            args += (shard, len(flat) // 2)
            args += flat
    return args


def _unmarked(mark: bytes | None) -> frozenset[int]:
    if mark is None:
        return _ALL_SHARDS
    if mark == _ALL_LOADED:
        return frozenset()
    return frozenset(s for s in range(SHARDS) if s // 8 >= len(mark) or not mark[s // 8] & 0x80 >> s % 8)


def _shard_string(shards: Collection[int]) -> str:
    held = set(shards)
    return "".join("1" if shard in held else "0" for shard in range(SHARDS))
