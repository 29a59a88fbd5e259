"""Sealed secrets open for their owner, under keys old and new, and for nobody else."""

from __future__ import annotations

import pytest

from controlplane.sealing import Sealer, Unsealable

OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_and_opened() -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal(b"secret", context=b"cell:a")
    assert b"secret" not in sealed
    assert sealer.open(sealed, context=b"cell:a") == b"secret"
    assert sealer.seal(b"secret", context=b"cell:a") != sealed


def test_older_keys_still_open() -> None:
    sealed = Sealer([OLD]).seal(b"secret", context=b"c")
    assert Sealer([NEW, OLD]).open(sealed, context=b"c") == b"secret"


def test_nobody_else_opens_it() -> None:
    sealed = Sealer([OLD]).seal(b"secret", context=b"c")
    for sealer, text, context in (
        (Sealer([NEW]), sealed, b"c"),
        (Sealer([OLD]), sealed, b"d"),
        (Sealer([OLD]), sealed[:-1] + bytes([sealed[-1] ^ 1]), b"c"),
        (Sealer([OLD]), b"", b"c"),
    ):
        with pytest.raises(Unsealable):
            sealer.open(text, context=context)
