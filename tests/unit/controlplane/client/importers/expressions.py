"""Random cron fields, for the property tests."""

from __future__ import annotations

from hypothesis import strategies as st

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def field(
    low: int, high: int, names: list[str] | None = None, *, open_step: bool = False
) -> st.SearchStrategy[str]:
    """A field of up to three items: numbers, names, ranges, steps, `*`."""

    def shown(number: int) -> st.SearchStrategy[str]:
        options = [str(number)]
        if names and number - low < len(names):
            options.append(names[number - low])
        return st.sampled_from(options)

    number = st.integers(low, high)
    single = number.flatmap(shown)
    span = st.tuples(number, number).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(1, high - low + 40)  # longer than the field, too: it then matches its start
    stepped = st.tuples(st.one_of(span, st.just("*")), step).map(lambda pair: f"{pair[0]}/{pair[1]}")
    items = [single, span, stepped]
    if open_step:
        items.append(st.tuples(number, step).map(lambda pair: f"{pair[0]}/{pair[1]}"))
    listed = st.lists(st.one_of(*items), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), single, listed)


def unix() -> st.SearchStrategy[str]:
    """Five fields as cronie takes them."""
    parts = (field(0, 59), field(0, 23), field(1, 31), field(1, 12, _MONTHS), field(0, 7, _WEEKDAYS))
    return st.tuples(*parts).map(" ".join)


def eventbridge(upper: bool = True) -> st.SearchStrategy[str]:
    """Six fields as EventBridge takes them."""
    case = str.upper if upper else str.lower
    weekdays = st.one_of(
        field(1, 7, _WEEKDAYS),
        st.tuples(st.integers(1, 7), st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
        st.tuples(st.sampled_from(_WEEKDAYS), st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
        st.integers(1, 7).map(lambda weekday: f"{weekday}L"),
        st.sampled_from(_WEEKDAYS).map(lambda weekday: f"{weekday}L"),
        st.just("L"),
    )
    nearest = st.integers(1, 31).map(lambda day: f"{day}W")
    days = st.one_of(
        st.tuples(st.one_of(field(1, 31, open_step=True), nearest, st.just("L")), st.just("?")),
        st.tuples(st.just("?"), weekdays),
    )
    years = st.one_of(
        st.just("*"),
        st.integers(2027, 2029).map(str),
        st.just("2027-2028"),
        st.just("2028,2027"),
        st.just("2027,2029"),
        st.just("2028/1"),
    )
    parts = st.tuples(
        field(0, 59, open_step=True),
        field(0, 23, open_step=True),
        days,
        field(1, 12, _MONTHS, open_step=True),
        years,
    )
    return parts.map(lambda p: " ".join((p[0], p[1], case(p[2][0]), case(p[3]), case(p[2][1]), p[4])))
