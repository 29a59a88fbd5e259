"""Five-field Unix cron expressions: parsing, and the walk over wall-clock minutes.

We parse the fields ourselves and hand croniter a canonical expression (sorted numbers, `*` only
where a field is unrestricted), so that its parser's peculiarities never matter. Nothing here
knows a time zone: what a wall time means is decided in `wallclock.py`.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from typing import NamedTuple

from croniter import croniter

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
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MINUTE = timedelta(minutes=1)
_DAY_SECONDS = 86_400
#: 29 February falls on a given weekday every 40 years at worst; croniter gives up later.
_SEARCH_YEARS = 50
#: The Gregorian calendar of these years has every pair of weekday and date beside each other.
_CYCLE = (date(2001, 1, 1).toordinal(), date(2029, 1, 1).toordinal())


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

_ITEM = re.compile(r"(?P<star>\*)|(?P<a>[0-9]+|[a-z]{3})(?:-(?P<b>[0-9]+|[a-z]{3}))?")
_FOREIGN = (
    (re.compile(r"\?"), "`?` is Quartz or EventBridge syntax"),
    (re.compile(r"#"), "`#` (the n-th weekday of a month) is Quartz or EventBridge syntax"),
    (re.compile(r"(?<![a-z])l(?![a-z])|(?<![a-z])lw(?![a-z])|(?:sun|mon|tue|wed|thu|fri|sat)l"),
     "`L` (last) is Quartz or EventBridge syntax"),
    (re.compile(r"[0-9]w|(?<![a-z])w(?![a-z])"), "`W` (nearest weekday) is Quartz or EventBridge syntax"),
    (re.compile(r"(?<![a-z])h(?![a-z])"), "`H` (hashed) is Jenkins syntax; the dispatch window spreads load here"),
    (re.compile(r"(?<![a-z])r(?![a-z])"), "`R` (random) is croniter syntax; the dispatch window spreads load here"),
    (re.compile(r"^\+"), "`+` is OCPS 1.4 syntax"),
)


class Cron:
    """A parsed expression. Immutable; safe to share between threads."""

    def __init__(self, fields: tuple[frozenset[int], ...], *, both_days: bool, frequent: bool) -> None:
        minutes, hours, self._days, self._months, self._weekdays = fields
        self.frequent = frequent  # the hour field's text starts with `*`: real ticks, no DST policy
        self._either = not both_days  # day-of-month OR day-of-week
        self._times = sorted(h * 60 + m for h in hours for m in minutes)
        self.canonical = self._canonical(fields)
        self._lock = threading.Lock()  # croniter keeps its position in itself
        self._walker = croniter(self.canonical, datetime(2000, 1, 1), datetime, day_or=self._either,
                                max_years_between_matches=_SEARCH_YEARS)

    def _canonical(self, fields: tuple[frozenset[int], ...]) -> str:
        """What croniter is given. With OR, a field that holds every day leaves nothing to
        restrict, and days that no month has leave only the weekdays."""
        sets: list[frozenset[int] | None] = [
            None if len(values) == f.high - f.low + 1 else values for f, values in zip(FIELDS, fields, strict=True)
        ]
        if self._either and (sets[2] is None or sets[4] is None):
            sets[2] = sets[4] = None
        elif self._either and not self._date_exists():
            sets[2] = None
        return " ".join("*" if s is None else ",".join(map(str, sorted(s))) for s in sets)

    def _date_exists(self) -> bool:
        return min(self._days) <= max(_MONTH_LENGTHS[m - 1] for m in self._months)

    @property
    def can_fire(self) -> bool:
        """Whether any date of the calendar matches. (29 February sees every weekday.)"""
        return self._either or self._date_exists()

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first matching wall-clock minute strictly after `wall`; None if the calendar ends."""
        with self._lock:
            try:
                found: datetime = self._walker.get_next(datetime, start_time=wall)
            except (ValueError, OverflowError):  # past the year 9999, or croniter's own
                return None
        return found

    def matches_day(self, day: date) -> bool:
        """Whether the expression fires on this calendar day."""
        if day.month not in self._months:
            return False
        in_days, in_weekdays = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return (in_days or in_weekdays) if self._either else (in_days and in_weekdays)

    def count_walls(self, start: datetime, stop: datetime) -> int:
        """How many wall-clock minutes w with start <= w < stop match. Work: one step a day."""
        if stop <= start:
            return 0
        first, last = start.toordinal(), stop.toordinal()
        whole = sum(self.matches_day(date.fromordinal(n)) for n in range(first, last))
        total = whole * len(self._times)
        if self.matches_day(start.date()):
            total -= bisect_left(self._times, _minutes_up(start))
        if self.matches_day(stop.date()):
            total += bisect_left(self._times, _minutes_up(stop))
        return total

    @cached_property
    def period_seconds(self) -> int:
        """The shortest distance between two occurrences on an undisturbed wall clock."""
        inside = min((b - a for a, b in zip(self._times, self._times[1:], strict=False)), default=1440) * 60
        over_night = _DAY_SECONDS - (self._times[-1] - self._times[0]) * 60
        if inside <= over_night:
            return inside
        return min(inside if len(self._times) > 1 else _DAY_SECONDS * 366,
                   over_night + (self._shortest_day_gap() - 1) * _DAY_SECONDS)

    def _shortest_day_gap(self) -> int:
        shortest, previous = 366, None
        for n in range(*_CYCLE):
            if self.matches_day(date.fromordinal(n)):
                if previous is not None:
                    shortest = min(shortest, n - previous)
                    if shortest == 1:
                        break
                previous = n
        return shortest


def _minutes_up(wall: datetime) -> int:
    """Minutes of the day, rounded up: walls of whole minutes lie at or after it."""
    return wall.hour * 60 + wall.minute + bool(wall.second or wall.microsecond)


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Parse a five-field expression or an alias such as `@daily`.

    Raises `ScheduleError` that names the field, or the foreign dialect where it looks like one.
    """
    expression = _plain(text)
    if expression.startswith("@"):
        if expression not in ALIASES:
            raise ScheduleError(POINTER, f"{expression} is not known; use one of {', '.join(sorted(ALIASES))}"
                                         " or five fields")
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
    both_days = texts[2].startswith("*") or texts[4].startswith("*")
    cron = Cron(tuple(sets), both_days=both_days, frequent=texts[1].startswith("*"))
    if not cron.can_fire:
        raise ScheduleError(POINTER, "day-of-month: no month of the month field has such a day; it can never fire")
    return cron


def _plain(text: str) -> str:
    if len(text) > MAX_LENGTH:
        raise ScheduleError(POINTER, f"longer than {MAX_LENGTH} characters")
    strange = next((c for c in text if not (" " <= c <= "~" or c == "\t")), None)
    if strange is not None:
        raise ScheduleError(POINTER, f"only ASCII may be used, found {strange!a}")
    plain = text.strip(" \t").lower()
    if not plain:
        raise ScheduleError(POINTER, "empty; five fields are needed: minute hour day-of-month month day-of-week")
    if re.match(r"(cron|rate|at)\s*\(", plain):
        raise ScheduleError(POINTER, "this is EventBridge syntax (`cron(...)`, `rate(...)`, `at(...)`); the UNIX"
                                     " dialect has five bare fields, and RATE and ONCE are schedule types")
    if re.match(r"(cron_)?tz=", plain):
        raise ScheduleError(POINTER, "the time zone belongs into `time_zone`, not into the expression")
    if re.match(r"r[0-9]*/", plain):
        raise ScheduleError(POINTER, "this is an ISO 8601 interval; use a RATE schedule or five cron fields")
    return plain


def _wrong_count(texts: list[str]) -> str:
    n = len(texts)
    five = "the UNIX dialect has five: minute hour day-of-month month day-of-week"
    if n == 7:
        return f"7 fields: this looks like Quartz (seconds first, year last); {five}"
    if n == 6:
        if "?" in (texts[2], texts[4]) or re.search(r"(19|2[01])[0-9][0-9]", texts[5]):
            return f"6 fields: this looks like EventBridge (year last); {five}"
        if "?" in (texts[3], texts[5]):
            return f"6 fields: this looks like Quartz (seconds first); {five}"
        return f"6 fields: this looks like Quartz or Spring (seconds first) or EventBridge (year last); {five}"
    return f"{n} field{'' if n == 1 else 's'}; {five}"


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
    # Longer than any valid number: not worth converting, however long it is.
    n = int(text[-9:]) if len(text.lstrip("0")) <= 9 else 10**9
    if not field.low <= n <= top:
        raise _fault(field, f"{text[:20]} is out of range ({field.low}-{top})")
    return n


def _parse_step(field: Field, text: str, item: str) -> int:
    if not text.isdigit():
        raise _fault(field, f"`{item[:40]}` has no number behind its `/`")
    most = field.high - field.low + 1
    step = int(text[-9:]) if len(text.lstrip("0")) <= 9 else 10**9
    if step == 0:
        raise _fault(field, "a step of 0 never moves")
    if step > most:
        raise _fault(field, f"a step of {text[:20]} leaves the field ({field.low}-{field.high}); steps restart at"
                            " every field start")
    return step


def _explain(field: Field, item: str) -> str:
    for pattern, sentence in _FOREIGN:
        if pattern.search(item):
            return f"{sentence}; the UNIX dialect does not know it"
    if field.names and re.match(r"[a-z]", item):
        return f"`{item[:40]}` is no name; use {', '.join(field.names)}"
    return f"`{item[:40]}` is not understood; use numbers {field.low}-{field.top or field.high}, lists, ranges, steps or `*`"


def _fault(field: Field, detail: str) -> ScheduleError:
    return ScheduleError(POINTER, f"{field.name}: {detail}")
