"""Takes a tenant out of the cell's Valkey, wherever it is: in names of keys, members and fields."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from cells.timers.valkey import Valkey

#: How much one step of a scan looks at.
_COUNT = 1000
#: What has a meaning in patterns.
_SPECIAL = b"*?[]\\^-"
_SCANS = {b"zset": ("ZSCAN", "ZREM"), b"hash": ("HSCAN", "HDEL")}


async def forget(valkey: Valkey, prefix: str, tenant: uuid.UUID) -> int:
    """How many keys, members and fields went. Ids of tenants are their 16 bytes everywhere."""
    anywhere = b"*" + _literally(tenant.bytes) + b"*"
    gone = 0
    async for key in _scan(valkey, ("SCAN",), _literally(prefix.encode()) + b"*"):
        if tenant.bytes in key:
            gone += int(await valkey.command("UNLINK", key))
            continue
        scan, remove = _SCANS.get(await valkey.command("TYPE", key), ("", ""))
        if not scan:
            continue
        found = [name async for name in _scan(valkey, (scan, key), anywhere)]
        for start in range(0, len(found), _COUNT):
            gone += int(await valkey.command(remove, key, *found[start : start + _COUNT]))
    return gone


async def _scan(valkey: Valkey, command: tuple[Any, ...], pattern: bytes) -> AsyncIterator[bytes]:
    cursor: Any = 0
    while True:
        cursor, found = await valkey.command(*command, cursor, "MATCH", pattern, "COUNT", _COUNT)
        # The client gives members of a zset with their scores, fields of a hash with their values.
        for name in found:
            yield name[0] if isinstance(name, tuple) else name
        if int(cursor) == 0:
            return


def _literally(text: bytes) -> bytes:
    """A pattern that means exactly these bytes."""
    return b"".join(b"\\" + bytes([c]) if c in _SPECIAL else bytes([c]) for c in text)
