"""What the control plane asks of a site over HTTP: signed, under the epoch it saw, once or often."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from cells.contract import Caller, Scope, body_hash, sign_request
from cells.ownership.lease import Timing
from controlplane.ownership import PromotionRecord
from controlplane.ownership.postgres import PostgresOwnershipStore
from controlplane.ownership.postgres import migrate as migrate_ownership
from controlplane.regions.keeper import Keeper
from controlplane.regions.pages import serving
from controlplane.regions.settings import Settings
from controlplane.regions.wishes import MOST_CUT_SECONDS, Wishes

KEY = bytes(range(32))


class Asked:
    """A keeper's address, its folder and the store it looks into."""

    def __init__(self, keeper: Keeper, settings: Settings, store: PostgresOwnershipStore, port: int) -> None:
        self.keeper, self.settings, self.store, self.port = keeper, settings, store, port

    def post(self, verb: str, wish: Mapping[str, Any], *, key: bytes = KEY) -> tuple[int, Any]:
        body = json.dumps(wish).encode()
        path = f"/wishes/{verb}"
        headers = sign_request(
            kid="cell", secret=key, now_ms=time.time_ns() // 1_000_000, method="POST", target=path,
            caller=Caller(actor="service:control-plane", scopes=(Scope.INTERNAL.value,)),
            body_sha256=body_hash(body),
        )  # fmt: skip
        answer = httpx.post(f"http://127.0.0.1:{self.port}{path}", content=body, headers=headers)
        return answer.status_code, answer.json()


@pytest.fixture
def asked(empty_database_url: str, tmp_path: Path) -> Iterator[Asked]:
    migrate_ownership(empty_database_url)
    store = PostgresOwnershipStore(empty_database_url)
    settings = Settings(
        cell="cell", region="a", founder="a", databases=dict.fromkeys("abc", "postgresql://x@127.0.0.1:1/x"),
        ownership_url=empty_database_url, valkey_url="redis://127.0.0.1:1/0", data=tmp_path / "data",
        binaries=tmp_path, bind_host="127.0.0.1", bind_port=0, timing=Timing(), key=KEY,
    )  # fmt: skip
    keeper = Keeper(settings, store)
    with serving(keeper, settings) as port:
        yield Asked(keeper, settings, store, port)
    store.close()


def test_a_handover_is_asked_for_under_the_epoch_that_was_seen(asked: Asked) -> None:
    epoch = asked.store.claim_cell("cell", region="a", expected=None).epoch
    wishes = Wishes(asked.settings.data.parent)
    for _ in range(2):  # an answer may be lost
        status, said = asked.post("hand-over", {"epoch": epoch, "to": "b", "until": time.time() + 60})
        assert (status, said) == (200, {"said": "cell goes from a to b"})
    assert wishes.handover(epoch, time.time()) == "b"
    assert wishes.handover(epoch, time.time() + 61) is None  # nobody waits for it any more
    asked.post("hand-over", {"epoch": epoch, "to": "b", "until": time.time() + 60})
    # One that is found under another epoch was meant for another owner.
    assert wishes.handover(epoch + 1, time.time()) is None
    assert wishes.handover(epoch, time.time()) is None

    later = asked.store.claim_cell("cell", region="a", expected=epoch).epoch
    status, said = asked.post("hand-over", {"epoch": epoch, "to": "b", "until": time.time() + 60})
    assert status == 409
    assert (said["epoch"], said["region"]) == (later, "a")
    assert wishes.handover(later, time.time()) is None
    status, said = asked.post("hand-over", {"epoch": later, "to": "elsewhere", "until": time.time() + 60})
    assert (status, "no other site" in said["detail"]) == (409, True)


def test_only_who_has_the_cells_key_is_heard(asked: Asked) -> None:
    epoch = asked.store.claim_cell("cell", region="a", expected=None).epoch
    wish = {"epoch": epoch, "to": "b", "until": time.time() + 60}
    assert asked.post("hand-over", wish, key=bytes(32))[0] == 401
    assert asked.post("hand-over", wish | {"more": 1})[0] == 400
    assert asked.post("go-away", wish)[0] == 404
    assert asked.post("override", {"epoch": epoch, "reason": "impatience"})[0] == 409


def test_a_site_rejoins_only_if_it_was_meant(asked: Asked) -> None:
    epoch = asked.store.claim_cell("cell", region="b", expected=None).epoch
    status, said = asked.post("rejoin", {"epoch": epoch, "region": "c"})
    assert (status, said["detail"]) == (409, "that was meant for c: this is a")
    status, said = asked.post("rejoin", {"epoch": epoch, "region": "a"})
    assert (status, "was not read yet" in said["detail"]) == (409, True)


def test_votes_are_given_up_where_they_were_waited_for(asked: Asked) -> None:
    store = asked.store
    first = store.claim_cell("cell", region="b", expected=None).epoch
    store.record_promotion(
        PromotionRecord(cell="cell", timeline=1, epoch=first, region="b", parent=0, fork=0)
    )
    wish = {"epoch": first, "reason": "c burnt down"}
    assert "nobody takes cell over" in asked.post("override", wish)[1]["detail"]
    epoch = wish["epoch"] = store.claim_cell("cell", region="a", expected=first).epoch
    assert "no site has voted" in asked.post("override", wish)[1]["detail"]
    store.cast_vote("cell", epoch=epoch, region="a", place="0/64 on 1")
    assert "are waited for by a since 0 s" in asked.post("override", wish)[1]["detail"]  # it waits for none
    status = asked.keeper.status
    status.missing, status.epoch = ("c",), epoch
    status.log.append((time.time() - 5, "WAIT", "the votes of c are missing"))
    assert asked.post("override", wish)[0] == 409
    status.log.append((time.time() - 60, "WAIT", "the votes of c are missing"))
    assert asked.post("override", wish) == (200, {"said": f"epoch {epoch} of cell is decided without c"})
    store.cast_vote("cell", epoch=epoch, region="c", place="0/64 on 1")
    status_code, said = asked.post("override", wish)
    assert (status_code, "none is to be given up" in said["detail"]) == (409, True)


def test_a_cut_ends_by_itself(asked: Asked) -> None:
    epoch = asked.store.claim_cell("cell", region="a", expected=None).epoch
    now = time.time()
    assert asked.post("cut-off", {"epoch": epoch, "region": "a", "until": now + 60})[0] == 200
    wishes = Wishes(asked.settings.data.parent)
    cut = wishes.cut(now)
    assert cut is not None
    assert cut.region == "a"
    assert wishes.cut(now + 61) is None
    assert wishes.cut(now) is None  # it is gone, whatever the clock does
    too_long = {"epoch": epoch, "region": "a", "until": now + MOST_CUT_SECONDS + 60}
    assert asked.post("cut-off", too_long)[0] == 409
