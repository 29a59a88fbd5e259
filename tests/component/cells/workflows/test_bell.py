"""The bell of the engines, in two processes of one cell."""

from __future__ import annotations

import pytest

from cells.workflows.bell import Bell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio


async def test_who_rings_hears_it_once_and_others_hear_it(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = Bell(valkey_url, cell="c"), Bell(valkey_url, cell="c")
    heard = {"mine": 0, "theirs": 0}

    def count(name: str, bell: Bell) -> None:
        hear = bell._heard

        def counted() -> None:
            heard[name] += 1
            hear()

        monkeypatch.setattr(bell, "_heard", counted)

    count("mine", mine)
    count("theirs", theirs)
    try:
        mine.listen()
        theirs.listen()
        await eventually(lambda: heard == {"mine": 1, "theirs": 1})  # whatever was said before
        mine.ring()
        await eventually(lambda: heard["theirs"] == 2)
        theirs.ring()
        # Said behind its own: of that one nothing came back.
        await eventually(lambda: heard["mine"] >= 3)
        assert heard == {"mine": 3, "theirs": 3}
    finally:
        await mine.close()
        await theirs.close()
