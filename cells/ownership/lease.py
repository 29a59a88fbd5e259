"""The lease of a cell's owner, as the owner counts it and as a survivor does. Pure: time is passed in.

All instants are of the asker's own steady clock (seconds); no two machines' clocks are ever compared.

The owner counts from the *start* of its last renewal that succeeded, so that however long the answer took
it never believes more than the record says, and stops early. A survivor counts from the *answer* that
first showed it the record as it still is, for a whole lease and more, and then claims on condition that
the record is still that one, renewals included. Between the two lies a gap, never an overlap:

    owner      renew ▸──ok───────────────────── stops │
    record            ●                               │
    survivor            ▸─seen──────────────────────────────── whole lease ──────│ + start ▸ claim
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """How long everything takes (seconds)."""

    lease: float = 20.0
    renew: float = 5.0  # from renewal to renewal
    stop: float = 5.0  # before its lease ends, the owner stops
    start: float = 5.0  # after the lease has ended for it, a survivor claims

    def __post_init__(self) -> None:
        if not 0 < self.renew < self.lease - self.stop or self.stop <= 0 or self.start <= 0:
            raise ValueError(
                f"a lease of {self.lease:g} s that is renewed every {self.renew:g} s and given up"
                f" {self.stop:g} s before its end is none"
            )

    @property
    def look(self) -> float:
        """How often somebody looks at the record."""
        return min(0.25, self.renew / 10)

    def scaled(self, factor: float) -> Timing:
        """The same, so many times as long."""
        return replace(
            self,
            lease=self.lease * factor,
            renew=self.renew * factor,
            stop=self.stop * factor,
            start=self.start * factor,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """What tells one state of a cell's record from another."""

    region: str
    epoch: int
    renewals: int


class Tenure:
    """The owner's side: until when it may act."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._epoch = 0
        self._began: float | None = None

    def renewed(self, *, epoch: int, began: float) -> None:
        """A claim or renewal that was begun then has succeeded. Answers that overtook each other do not
        take anything back."""
        if epoch > self._epoch:
            self._epoch, self._began = epoch, began
        elif epoch == self._epoch and (self._began is None or began > self._began):
            self._began = began

    def lost(self) -> None:
        """Somebody else owns the cell."""
        self._began = None

    def until(self, epoch: int) -> float:
        """When it has to stop."""
        if self._began is None or epoch != self._epoch:
            return float("-inf")
        return self._began + self._timing.lease - self._timing.stop

    def acts(self, epoch: int, now: float) -> bool:
        """Whether it may act as the owner of `epoch`."""
        return now < self.until(epoch)

    def due(self, epoch: int, now: float) -> bool:
        """Whether it is time to renew."""
        return self._began is None or epoch != self._epoch or now >= self._began + self._timing.renew


class Watch:
    """A survivor's side: since when the record has not changed."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._sight: Sight | None = None
        self._since = 0.0

    def saw(self, sight: Sight | None, *, answered: float) -> None:
        """The record, as an answer that came then showed it."""
        if sight != self._sight:
            self._sight, self._since = sight, answered

    def unchanged(self, now: float) -> float:
        """For how long it has been seen unchanged."""
        return now - self._since if self._sight is not None else 0.0

    def may_claim(self, now: float, *, after: float = 0.0) -> Sight | None:
        """What a claim has to be based on, once nobody can be acting under it any more. `after`: a wait on
        top, by which survivors do not all claim at once."""
        if self._sight is None or self.unchanged(now) < self._timing.lease + self._timing.start + after:
            return None
        return self._sight
