"""The Schedule, the event loop that makes one, saving, analysis."""

from tardigrad.schedule.make import schedule
from tardigrad.schedule.recorder import Recorder
from tardigrad.schedule.schedule import Schedule
from tardigrad.schedule.validate import validate

__all__ = ["Recorder", "Schedule", "schedule", "validate"]
