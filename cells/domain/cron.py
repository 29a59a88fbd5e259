"""Five-field Unix cron expressions: parsing, and the walk over wall-clock minutes.

Nothing here knows a time zone: what a wall time means is decided in `wallclock.py`. The walk is
our own because every claim of a recurring job takes one step of it; croniter, which is several
times slower, agrees with it in the tests.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Sequence
from datetime import MAXYEAR, date, datetime, time
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

from cells.domain.faults import ScheduleError

POINTER = "/schedule/cron"
MAX_LENGTH = 500

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_LENGTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: 28 years: every weekday has stood beside every date, leap day included.
_CYCLE = range(date(2001, 1, 1).toordinal(), date(2029, 1, 1).toordinal())


class Field(NamedTuple):
    """One field's grammar. `low` to `high` is what `*` stands for."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # names[i] stands for low + i
    cycle: int = 0  # ranges may wrap round with this length; 0: they may not
    top: int = 0  # highest number that may be written, where it is not `high`


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, _MONTHS, 12),
    Field("day-of-week", 0, 6, _DAYS, 7, 7),
)

_FIVE = "the UNIX dialect has five fields: minute hour day-of-month month day-of-week"
_ITEM = re.compile(r"(?P<star>\*)|(?P<a>[0-9]+|[a-z]{3})(?:-(?P<b>[0-9]+|[a-z]{3}))?")
_FOREIGN = (
    (re.compile(r"\?"), "`?` is Quartz or EventBridge syntax"),
    (re.compile(r"#"), "`#` (the n-th weekday of a month) is Quartz or EventBridge syntax"),
    (
        re.compile(r"(?<![a-z])l(?![a-z])|(?<![a-z])lw(?![a-z])|(?:sun|mon|tue|wed|thu|fri|sat)l"),
        "`L` (last) is Quartz or EventBridge syntax",
    ),
    (re.compile(r"[0-9]w|(?<![a-z])w(?![a-z])"), "`W` (nearest weekday) is Quartz syntax"),
    (re.compile(r"(?<![a-z])h(?![a-z])"), "`H` (hashed) is Jenkins syntax"),
    (re.compile(r"(?<![a-z])r(?![a-z])"), "`R` (random) is croniter syntax"),
    (re.compile(r"^\+"), "`+` is OCPS 1.4 syntax"),
)


class Cron:
    """A parsed expression. Immutable; safe to share between threads."""

    def __init__(self, fields: Sequence[frozenset[int]], *, either: bool, frequent: bool) -> None:
        minutes, hours, days, self.months, self.weekdays = fields  # weekdays: 0 is Sunday
        self.minutes, self.hours, self.days = sorted(minutes), sorted(hours), sorted(days)
        self.either = either  # a day matches if either of its fields does; else if both do
        self.frequent = frequent  # the hour's text starts with `*`: real ticks, no DST policy
        self._day_set = days

    @property
    def can_fire(self) -> bool:
        """Whether any date of the calendar matches. (29 February sees every weekday.)"""
        return self.either or self.days[0] <= max(_MONTH_LENGTHS[month] for month in self.months)

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first matching wall-clock minute strictly after `wall`; None if the calendar ends."""
        day = wall.date()
        if self.matches_day(day):
            hour = wall.hour
            if hour in self.hours:
                later = bisect_right(self.minutes, wall.minute)
                if later < len(self.minutes):
                    return datetime.combine(day, time(hour, self.minutes[later]))
            later = bisect_right(self.hours, hour)
            if later < len(self.hours):
                return datetime.combine(day, time(self.hours[later], self.minutes[0]))
        following = self._next_day(day)
        if following is None:
            return None
        return datetime.combine(following, time(self.hours[0], self.minutes[0]))

    def _next_day(self, day: date) -> date | None:
        """The first matching day after `day`. At most 40 years away, for 29 February on a
        given weekday across a year like 2100."""
        year, month, start = day.year, day.month, day.day + 1
        while year < MAXYEAR:
            if month in self.months:
                first_weekday = date(year, month, 1).isoweekday() - 1
                length = 28 if month == 2 and not isleap(year) else _MONTH_LENGTHS[month]
                for number in range(start, length + 1):
                    in_weekdays = (first_weekday + number) % 7 in self.weekdays
                    if number in self._day_set:
                        if in_weekdays or self.either:
                            return date(year, month, number)
                    elif in_weekdays and self.either:
                        return date(year, month, number)
            year, month, start = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def matches_day(self, day: date) -> bool:
        """Whether the expression fires on this calendar day."""
        if day.month not in self.months:
            return False
        in_days, in_weekdays = day.day in self._day_set, day.isoweekday() % 7 in self.weekdays
        return (in_days or in_weekdays) if self.either else (in_days and in_weekdays)

    def count_walls(self, start: datetime, stop: datetime) -> int:
        """How many wall-clock minutes w with start <= w < stop match. Work: one step a day."""
        if stop <= start:
            return 0
        whole = sum(self.matches_day(date.fromordinal(n)) for n in range(start.toordinal(), stop.toordinal()))
        total = whole * len(self.hours) * len(self.minutes)
        if self.matches_day(start.date()):
            total -= self._count_before(start)
        if self.matches_day(stop.date()):
            total += self._count_before(stop)
        return total

    def _count_before(self, wall: datetime) -> int:
        """Matching minutes before the time of day of `wall`, on a matching day."""
        total = bisect_left(self.hours, wall.hour) * len(self.minutes)
        if wall.hour in self.hours:
            # Minutes begin at their first second: 12:30:01 has 12:30 behind it.
            part = bool(wall.second or wall.microsecond)
            total += bisect_left(self.minutes, wall.minute + part)
        return total

    @cached_property
    def period_seconds(self) -> int:
        """The shortest distance between two occurrences on an undisturbed wall clock."""
        times = [hour * 60 + minute for hour in self.hours for minute in self.minutes]
        inside = min((b - a for a, b in pairwise(times)), default=None)
        over_night = 1440 - times[-1] + times[0]  # if the day after matches too
        if inside is None or over_night < inside:
            over_night += (self._shortest_day_gap() - 1) * 1440
            inside = over_night if inside is None else min(inside, over_night)
        return inside * 60

    def _shortest_day_gap(self) -> int:
        shortest, previous = 366, -366
        for n in _CYCLE:
            if self.matches_day(date.fromordinal(n)):
                shortest, previous = min(shortest, n - previous), n
                if shortest == 1:
                    break
        return shortest


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Parse a five-field expression or an alias such as `@daily`.

    Raises `ScheduleError` that names the field, or the foreign dialect where it looks like one.
    """
    expression = _plain(text)
    if expression.startswith("@"):
        if expression not in ALIASES:
            raise ScheduleError(
                POINTER, f"{expression} is not known; use one of {', '.join(sorted(ALIASES))} or five fields"
            )
        expression = ALIASES[expression]
    texts = expression.split()
    if len(texts) != len(FIELDS):
        raise ScheduleError(POINTER, _wrong_count(texts))
    faults: list[tuple[str, str]] = []
    sets: list[frozenset[int]] = []
    for field, part in zip(FIELDS, texts, strict=True):
        try:
            sets.append(_parse_field(field, part))
        except ScheduleError as error:
            faults += error.faults
    if faults:
        raise ScheduleError.of(faults)
    # Vixie's rule looks at the text: `*/2` and `*,1` have the star flag, `0-6` has not.
    either = not (texts[2].startswith("*") or texts[4].startswith("*"))
    cron = Cron(sets, either=either, frequent=texts[1].startswith("*"))
    if not cron.can_fire:
        raise ScheduleError(POINTER, "day-of-month: none of the months has such a day; it can never fire")
    return cron


def _plain(text: str) -> str:
    if len(text) > MAX_LENGTH:
        raise ScheduleError(POINTER, f"longer than {MAX_LENGTH} characters")
    strange = next((c for c in text if not (" " <= c <= "~" or c == "\t")), None)
    if strange is not None:
        raise ScheduleError(POINTER, f"only ASCII may be used, found {strange!a}")
    plain = text.strip(" \t").lower()
    if not plain:
        raise ScheduleError(POINTER, f"empty; {_FIVE}")
    if re.match(r"(cron|rate|at)\s*\(", plain):
        raise ScheduleError(
            POINTER, f"this is EventBridge syntax; {_FIVE}, and RATE and ONCE are schedule types of their own"
        )
    if re.match(r"(cron_)?tz=", plain):
        raise ScheduleError(POINTER, "the time zone belongs into `time_zone`, not into the expression")
    if re.match(r"r[0-9]*/", plain):
        raise ScheduleError(POINTER, "this is an ISO 8601 interval; use a RATE schedule or five cron fields")
    return plain


def _wrong_count(texts: list[str]) -> str:
    n = len(texts)
    if n == 7:
        return f"7 fields: this looks like Quartz (seconds first, year last); {_FIVE}"
    if n == 6:
        if "?" in (texts[2], texts[4]) or re.search(r"(19|2[01])[0-9][0-9]", texts[5]):
            return f"6 fields: this looks like EventBridge (year last); {_FIVE}"
        if "?" in (texts[3], texts[5]):
            return f"6 fields: this looks like Quartz (seconds first); {_FIVE}"
        return f"6 fields: seconds first (Quartz, Spring) or a year last (EventBridge)? {_FIVE}"
    return f"{n} field{'' if n == 1 else 's'}; {_FIVE}"


def _parse_field(field: Field, text: str) -> frozenset[int]:
    values: set[int] = set()
    for item in text.split(","):
        if not item:
            raise _fault(field, "an item of the list is empty")
        values.update(_parse_item(field, item))
    return frozenset(values)


def _parse_item(field: Field, item: str) -> list[int]:
    base, slash, step_text = item.partition("/")
    match = _ITEM.fullmatch(base)
    if match is None:
        raise _fault(field, _explain(field, item))
    step = _parse_step(field, step_text, item) if slash else 1
    if match["star"]:
        return list(range(field.low, field.high + 1, step))
    start = _number(field, match["a"])
    if match["b"] is None:
        if not slash:
            return [_fold(field, start)]
        return list(range(_fold(field, start), field.high + 1, step))
    end = _number(field, match["b"])
    if end < start:
        if not field.cycle:
            raise _fault(field, f"`{base}` runs backwards; write two ranges")
        end += field.cycle
    return [_fold(field, n) for n in range(start, end + 1, step)]


def _fold(field: Field, n: int) -> int:
    return (n - field.low) % field.cycle + field.low if field.cycle else n


def _number(field: Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdigit():
        raise _fault(field, _explain(field, text))
    top = field.top or field.high
    n = int(text)
    if not field.low <= n <= top:
        raise _fault(field, f"{text[:20]} is out of range ({field.low}-{top})")
    return n


def _parse_step(field: Field, text: str, item: str) -> int:
    if not text.isdigit():
        raise _fault(field, f"`{item[:40]}` has no number behind its `/`")
    most = field.high - field.low + 1
    step = int(text)
    if step == 0:
        raise _fault(field, "a step of 0 never moves")
    if step > most:
        raise _fault(
            field,
            f"a step of {text[:20]} leaves the field ({field.low}-{field.high});"
            " steps restart at every field start",
        )
    return step


def _explain(field: Field, item: str) -> str:
    for pattern, sentence in _FOREIGN:
        if pattern.search(item):
            return f"{sentence}; the UNIX dialect does not know it"
    if field.names and re.match(r"[a-z]", item):
        return f"`{item[:40]}` is no name; use {', '.join(field.names)}"
    numbers = f"numbers {field.low}-{field.top or field.high}"
    return f"`{item[:40]}` is not understood; use {numbers}, lists, ranges, steps or `*`"


def _fault(field: Field, detail: str) -> ScheduleError:
    return ScheduleError(POINTER, f"{field.name}: {detail}")
