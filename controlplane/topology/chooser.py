"""Chooses a cell for a tenant, and says why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cell as the chooser sees it. Rates are runs a second."""

    name: str
    region: str
    state: str  # OPEN, CORDONED, DRAINING, RETIRED
    dedicated: bool
    capacity: int  # measured, with one host less than it has (N+1)
    promised: int  # sum of its tenants' quotas
    tenants: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is to be placed."""

    region: str
    runs_per_second: int
    dedicated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The cell, or none, and the reasons in plain words."""

    cell: str | None
    why: str
    refused: tuple[tuple[str, str], ...]  # cell → why not


#: Tenants rarely use their quota at the same time: how often capacity may be promised.
OVERSUBSCRIPTION = 4


def choose_cell(wish: Wish, candidates: Sequence[Candidate]) -> Choice:
    """The OPEN cell of the region with the most room left, measured by what is promised.

    A dedicated tenant gets an empty dedicated cell and nothing else; nobody else gets one.
    """
    refused: list[tuple[str, str]] = []
    fitting: list[tuple[int, str]] = []
    for cell in candidates:
        reason = _why_not(wish, cell)
        if reason is not None:
            refused.append((cell.name, reason))
        else:
            room = _limit(wish, cell) - cell.promised - wish.runs_per_second
            fitting.append((-room, cell.name))
    refused.sort()
    if not fitting:
        what = "dedicated cell" if wish.dedicated else "cell"
        return Choice(
            cell=None,
            why=f"no {what} in {wish.region} takes {wish.runs_per_second} runs/s",
            refused=tuple(refused),
        )
    room, name = min(fitting)
    others = f", most of {len(fitting)}" if len(fitting) > 1 else ""
    return Choice(
        cell=name,
        why=f"{name}: open in {wish.region}, {-room} runs/s of promises left afterwards{others}",
        refused=tuple(refused),
    )


def _limit(wish: Wish, cell: Candidate) -> int:
    return cell.capacity if wish.dedicated else cell.capacity * OVERSUBSCRIPTION


def _why_not(wish: Wish, cell: Candidate) -> str | None:
    if cell.region != wish.region:
        return f"in {cell.region}"
    if cell.state != "OPEN":
        return cell.state.lower()
    if cell.dedicated != wish.dedicated:
        return "kept for one tenant" if cell.dedicated else "shared with others"
    if wish.dedicated and cell.tenants:
        return "already has its tenant"
    if wish.runs_per_second > cell.capacity:
        return f"one tenant's {wish.runs_per_second} runs/s exceed its capacity of {cell.capacity}"
    if cell.promised + wish.runs_per_second > _limit(wish, cell):
        return f"{cell.promised} of {_limit(wish, cell)} runs/s are promised"
    return None
