"""The Schedule, the event loop that makes one, saving, analysis."""

from tardigrad.schedule.make import check_control, control, schedule
from tardigrad.schedule.recorder import Recorder
from tardigrad.schedule.schedule import Schedule
from tardigrad.schedule.traffic import Copies, Traffic, traffic
from tardigrad.schedule.validate import validate

__all__ = [
    "Copies",
    "Recorder",
    "Schedule",
    "Traffic",
    "check_control",
    "control",
    "schedule",
    "traffic",
    "validate",
]
