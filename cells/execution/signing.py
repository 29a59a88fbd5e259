"""Signatures of the calls to targets: Standard Webhooks, `v1` (HMAC-SHA256).

The signed content is `id.timestamp.body`; the header lists one signature for each live
generation of the secret, newest first, so that a target can change over whenever it likes
inside the overlap. Pure.
"""

from __future__ import annotations

import base64
import hmac
from binascii import b2a_base64
from collections.abc import Sequence

#: Bytes of a new signing secret. The standard asks for 24 to 64.
SECRET_BYTES = 32
_PREFIX = "whsec_"


def show_secret(raw: bytes) -> str:
    """A signing secret as its owner sees it: `whsec_` and base64."""
    return _PREFIX + base64.b64encode(raw).decode()


class Signer:
    """Signs with every live secret of one target. `secrets` are raw bytes, newest first."""

    __slots__ = ("_keyed",)

    def __init__(self, secrets: Sequence[bytes]):
        # An HMAC object keyed once and copied per call skips the key schedule.
        self._keyed = tuple(hmac.new(secret, digestmod="sha256") for secret in secrets)

    def sign(self, webhook_id: str, timestamp: str, body: bytes) -> str:
        """The `webhook-signature` header: `v1,<base64>`, one per secret, separated by spaces.
        `timestamp` is whole unix seconds."""
        content = f"{webhook_id}.{timestamp}.".encode() + body
        signatures = []
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(content)
            signatures.append("v1," + b2a_base64(mac.digest(), newline=False).decode())
        return " ".join(signatures)
