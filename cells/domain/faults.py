"""The one error that says what is wrong with a schedule, all of it at once."""

from __future__ import annotations


class ScheduleError(ValueError):
    """A schedule that cannot be accepted.

    `faults` lists (JSON pointer into the request body, sentence); the pointers begin at the
    member that holds the schedule: `/schedule/cron`, `/schedule/time_zone`, ...
    """

    def __init__(self, pointer: str, detail: str, *more: tuple[str, str]) -> None:
        self.faults: list[tuple[str, str]] = [(pointer, detail), *more]
        super().__init__("; ".join(text for _, text in self.faults))

    @classmethod
    def of(cls, faults: list[tuple[str, str]]) -> ScheduleError:
        """One error for at least one fault."""
        (pointer, detail), *more = faults
        return cls(pointer, detail, *more)
