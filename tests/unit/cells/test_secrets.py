import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.secrets import CannotOpen, SealedBox, target_context

NEW, OLD, OTHER = b"n" * 32, b"o" * 32, b"x" * 32
CONTEXT = target_context(uuid.UUID(int=1), "tgt_a", "SIGNING")


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_was_sealed_opens(plain: bytes, context: bytes) -> None:
    box = SealedBox([NEW])
    assert box.open(box.seal(plain, context=context), context=context) == plain


def test_nothing_is_sealed_alike_twice() -> None:
    box = SealedBox([NEW])
    assert box.seal(b"secret", context=CONTEXT) != box.seal(b"secret", context=CONTEXT)


def test_an_older_key_still_opens_but_does_not_seal() -> None:
    sealed = SealedBox([OLD]).seal(b"secret", context=CONTEXT)
    both = SealedBox([NEW, OLD])
    assert both.open(sealed, context=CONTEXT) == b"secret"
    with pytest.raises(CannotOpen, match="unknown key"):
        SealedBox([OLD]).open(both.seal(b"secret", context=CONTEXT), context=CONTEXT)


@pytest.mark.parametrize(
    "elsewhere",
    [
        target_context(uuid.UUID(int=2), "tgt_a", "SIGNING"),
        target_context(uuid.UUID(int=1), "tgt_b", "SIGNING"),
        target_context(uuid.UUID(int=1), "tgt_a", "CREDENTIAL"),
    ],
)
def test_a_secret_opens_only_in_its_place(elsewhere: bytes) -> None:
    box = SealedBox([NEW])
    with pytest.raises(CannotOpen, match="another place"):
        box.open(box.seal(b"secret", context=CONTEXT), context=elsewhere)


def test_any_changed_bit_is_noticed() -> None:
    box = SealedBox([NEW])
    sealed = box.seal(b"secret", context=CONTEXT)
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(CannotOpen):
            box.open(bytes(changed), context=CONTEXT)


@pytest.mark.parametrize("text", [b"", b"\x01", b"\x02" + b"x" * 40])
def test_what_was_never_sealed_does_not_open(text: bytes) -> None:
    with pytest.raises(CannotOpen):
        SealedBox([NEW]).open(text, context=CONTEXT)


def test_wrong_key() -> None:
    with pytest.raises(CannotOpen):
        SealedBox([OTHER]).open(SealedBox([NEW]).seal(b"s", context=CONTEXT), context=CONTEXT)
