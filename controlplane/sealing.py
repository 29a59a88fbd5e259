"""Secrets at rest: AES-256-GCM under the installation key, bound to what they belong to."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class Unsealable(Exception):
    """No installation key opens it: another key, another owner, or changed bytes."""


class Sealer:
    """Seals with the first key, opens with any, so that keys can be rotated."""

    def __init__(self, keys: Sequence[bytes]):
        self._ciphers = [AESGCM(key) for key in keys]

    def seal(self, plain: bytes, *, context: bytes) -> bytes:
        """`context` names the owner (`cell:<name>`); only the same context opens it again."""
        nonce = os.urandom(_NONCE)
        return nonce + self._ciphers[0].encrypt(nonce, plain, context)

    def open(self, sealed: bytes, *, context: bytes) -> bytes:
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
            except (InvalidTag, ValueError):  # ValueError: too short to be one of ours
                continue
        raise Unsealable(context.decode())
