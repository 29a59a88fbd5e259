"""Secrets at rest: AES-256-GCM under the installation's key.

Sealed text = format (1 byte) | key id (4) | nonce (12) | ciphertext and tag. The context a
secret was sealed for is authenticated with it, so a sealed secret copied to another place does
not open there. After a key change the older keys still open what they sealed.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = b"\x01"
_KEY_ID = 4
_NONCE = 12
_HEAD = 1 + _KEY_ID + _NONCE


class CannotOpen(Exception):
    """Sealed by an unknown key, for another place, or damaged."""


def target_context(tenant_id: uuid.UUID, target_id: str, purpose: str) -> bytes:
    """The place of a target's secret; `purpose` is SIGNING or CREDENTIAL."""
    return b"\0".join((b"target-secret", tenant_id.bytes, target_id.encode(), purpose.encode()))


class SealedBox:
    """Implements `ports.Secrets`. The first key seals, every key opens."""

    def __init__(self, keys: Sequence[bytes]):
        if not keys:
            raise ValueError("at least one key")
        self._keys = {_key_id(key): AESGCM(key) for key in keys}
        self._current = _key_id(keys[0])

    def seal(self, plain: bytes, *, context: bytes) -> bytes:
        """Encrypt `plain` for the place `context` names."""
        nonce = os.urandom(_NONCE)
        head = _FORMAT + self._current + nonce
        return head + self._keys[self._current].encrypt(nonce, plain, head + context)

    def open(self, sealed: bytes, *, context: bytes) -> bytes:
        """What was sealed, or `CannotOpen`."""
        head = sealed[:_HEAD]
        if len(head) < _HEAD or head[:1] != _FORMAT:
            raise CannotOpen("not a sealed secret")
        key = self._keys.get(head[1 : 1 + _KEY_ID])
        if key is None:
            raise CannotOpen("sealed by an unknown key")
        try:
            return key.decrypt(head[1 + _KEY_ID :], sealed[_HEAD:], head + context)
        except InvalidTag:
            raise CannotOpen("damaged, or sealed for another place") from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"clockhouse-key-id" + key).digest()[:_KEY_ID]
