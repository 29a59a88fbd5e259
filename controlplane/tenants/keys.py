"""API keys as text: `ch_live_<id>_<secret>`, operators' `ch_op_<id>_<secret>`.

Only the SHA-256 of the whole text is kept: a key has 256 random bits, so a slow hash would
protect nothing and cost every request.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass

_FORM = re.compile(r"ch_(live|op)_([a-z2-7]{16})_([A-Za-z0-9-]{43})")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyText:
    """A key as its holder has it. The text is a secret."""

    id: str
    operator: bool
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def new_key(*, operator: bool = False) -> KeyText:
    """A fresh key."""
    key_id = base64.b32encode(secrets.token_bytes(10)).decode().lower()
    # `_` separates the parts, so the secret has none. 43 digits of 63 symbols: 257 bits.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"
    secret = "".join(secrets.choice(alphabet) for _ in range(43))
    kind = "op" if operator else "live"
    return KeyText(id=key_id, operator=operator, text=f"ch_{kind}_{key_id}_{secret}")


def parse_key(text: str) -> KeyText | None:
    """The parts of a key, or None if the text is none."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    return KeyText(id=match[2], operator=match[1] == "op", text=text)
