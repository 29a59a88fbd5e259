"""Clockhouse from Python: a client, a worker, and what targets need.

from clockhouse import Clockhouse, HttpTarget, NewJob, Schedule
"""

from controlplane.client import *  # noqa: F403
from controlplane.client import __all__ as __all__
