"""Certificates: what was erased, in one canonical text, with its hash and a signature that anybody can check.

The key for signing is derived from the installation's key, so it is kept nowhere; the public halves of all
installation keys are published, so that older certificates stay good after a rotation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

FORMAT = "clockhouse-erasure-certificate/1"
_PURPOSE = b"clockhouse erasure certificates"


def canonical(content: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed and signed: JSON, keys in order, no blanks, UTF-8."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _private(installation_key: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hmac.new(installation_key, _PURPOSE, hashlib.sha256).digest())


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def published() -> list[dict[str, str]]:
    """The public keys that certificates of this installation are checked with, the present one first."""
    keys = [_public(_private(key)) for key in settings.CONFIGURATION.installation_keys]
    return [
        {"key_id": _id(key), "algorithm": "Ed25519", "public_key": base64.b64encode(key).decode()}
        for key in keys
    ]


def certify(content: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate: the content, its SHA-256, and the signature of its canonical text."""
    key = _private(settings.CONFIGURATION.installation_keys[0])
    text = canonical(content)
    return {
        "certificate": dict(content),
        "sha256": hashlib.sha256(text).hexdigest(),
        "signature": {**published()[0], "value": base64.b64encode(key.sign(text)).decode()},
    }


def is_genuine(certificate: Mapping[str, Any]) -> bool:
    """Whether it was signed by this installation and is as it was."""
    text = canonical(certificate["certificate"])
    for key in settings.CONFIGURATION.installation_keys:
        private = _private(key)
        if _id(_public(private)) != certificate["signature"]["key_id"]:
            continue
        try:
            private.public_key().verify(base64.b64decode(certificate["signature"]["value"]), text)
        except (InvalidSignature, ValueError):
            return False
        return hashlib.sha256(text).hexdigest() == certificate["sha256"]
    return False
