"""What the control plane asks of a site: requests signed with the cell's key, under the epoch that was seen.

`POST /wishes/<verb>` with a JSON object; only the site's keeper acts on it, in its next round. The same wish
may be sent again. One that names another epoch than the cell is under now is refused with what holds: whoever
asks has to look, and decide, again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cells.contract import BODY_HASH_HEADER, BadSignature, Scope, body_hash, verify_request
from controlplane.ownership import OwnershipStore, installed
from controlplane.ownership.store import CellOwnership, OwnershipUnavailable
from controlplane.regions.settings import Settings
from controlplane.regions.wishes import Refused, cut_off, give_up, hand_over, override, rejoin

#: Longest body that is read (bytes).
MOST_BYTES = 16_384
PREFIX = "/wishes/"


class HandOver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another region becomes the owner; begun before `until` (seconds since 1970), or not at all."""

    epoch: int
    to: str
    until: float


class Rejoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site in `region`, which strayed, follows the owner. All sites of a cell have one key: what was
    signed for one must mean nothing to another."""

    epoch: int
    region: str


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A takeover goes on without the votes that are missing."""

    epoch: int
    reason: str


class GiveUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What only `site` has is not waited for any more; asked of the owner's site."""

    epoch: int
    site: str
    reason: str


class CutOff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a rehearsal: a region is cut off from the others until then (seconds since 1970)."""

    epoch: int
    region: str
    until: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What a wish is granted by. `row`: as the wish saw it, and what is done is done under its epoch."""

    settings: Settings
    store: OwnershipStore
    row: CellOwnership
    waited: float


_Act = Callable[[_Asked, Any], str]


def _hand_over(asked: _Asked, wish: HandOver) -> str:
    return hand_over(asked.settings, asked.row, to=wish.to, until=wish.until)


def _rejoin(asked: _Asked, wish: Rejoin) -> str:
    if wish.region != asked.settings.region:
        raise Refused(f"that was meant for {wish.region}: this is {asked.settings.region}")
    return rejoin(asked.settings, asked.row)


def _override(asked: _Asked, wish: Override) -> str:
    return override(asked.settings, asked.store, asked.row, reason=wish.reason, waited=asked.waited)


def _give_up(asked: _Asked, wish: GiveUp) -> str:
    return give_up(asked.settings, asked.row, site=wish.site, reason=wish.reason)


def _cut_off(asked: _Asked, wish: CutOff) -> str:
    return cut_off(asked.settings, region=wish.region, until=wish.until, now=time.time())


_VERBS: Mapping[str, tuple[type[msgspec.Struct], _Act]] = {
    "hand-over": (HandOver, _hand_over),
    "rejoin": (Rejoin, _rejoin),
    "override": (Override, _override),
    "give-up": (GiveUp, _give_up),
    "cut-off": (CutOff, _cut_off),
}


def answer_wish(
    settings: Settings,
    *,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    waited: Callable[[int], float],
) -> tuple[int, dict[str, object]]:
    """Status and body for a POST. 200 `said`; 400, 401, 404, 409 (`detail`, and `epoch` and `region` as they
    are) and 503 say why not. `waited`: for how long (seconds) this site's keeper has waited for votes that
    are missing under an epoch."""
    if settings.key is None:
        return 403, {"detail": "this keeper has no key (SITE_KEY), and is asked for nothing over HTTP"}
    try:
        caller = verify_request(
            keys={settings.cell: settings.key},
            now_ms=time.time_ns() // 1_000_000,
            method="POST",
            target=path,
            headers=headers,
        )
        if headers.get(BODY_HASH_HEADER) != body_hash(body):
            raise BadSignature("the body is not what was signed")
        if Scope.INTERNAL.value not in caller.scopes:
            raise BadSignature("signed for something else")
    except BadSignature as fault:
        return 401, {"detail": str(fault)}
    form, act = _VERBS.get(path.removeprefix(PREFIX), (None, None))
    if form is None or act is None:
        return 404, {"detail": f"there is no wish {path}; there are {', '.join(_VERBS)}"}
    try:
        wish = msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as fault:
        return 400, {"detail": str(fault)}
    return _granted(settings, wish, act, waited)


def _granted(
    settings: Settings, wish: Any, act: _Act, waited: Callable[[int], float]
) -> tuple[int, dict[str, object]]:
    try:
        store = installed.open_store(settings.ownership_url)
    except OwnershipUnavailable as fault:
        return 503, {"detail": f"the ownership store cannot be reached: {fault}"}
    try:
        row = store.cell(settings.cell)
        if row is None or row.epoch != wish.epoch:
            now = "nobody owns it" if row is None else f"{row.region} owns it under epoch {row.epoch}"
            return 409, {
                "detail": f"{settings.cell} is not under epoch {wish.epoch} any more: {now}",
                "epoch": 0 if row is None else row.epoch,
                "region": "" if row is None else row.region,
            }
        asked = _Asked(settings=settings, store=store, row=row, waited=waited(row.epoch))
        return 200, {"said": act(asked, wish)}
    except Refused as fault:
        return 409, {"detail": str(fault), "epoch": wish.epoch, "region": row.region if row else ""}
    except OwnershipUnavailable as fault:
        return 503, {"detail": f"the ownership store cannot be reached: {fault}"}
    finally:
        store.close()
