"""What an authenticator app does (RFC 6238)."""

from __future__ import annotations

import base64
import hmac
import struct
import time


def totp_code(secret: str, at: float | None = None) -> str:
    """The code an app shows for a secret now."""
    counter = int((time.time() if at is None else at) // 30)
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.digest(key, struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 0x0F
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06d}"
