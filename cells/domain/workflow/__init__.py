"""Workflows: what a definition says, what a history means, what is to be done next.

    text ──parse──▶ Definition ─┐
                                ├─ decide ──▶ commands ──record──▶ events
    events ──fold──▶ Execution ─┘

Everything here follows from recorded values alone. Whoever folds the same events decides the
same; there is no clock, no chance and no other way in.
"""
