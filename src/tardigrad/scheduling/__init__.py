"""The Schedule, the event loop that makes one, saving, analysis."""

from tardigrad.scheduling.held import held_back
from tardigrad.scheduling.make import check_control, control, schedule
from tardigrad.scheduling.pipeline import pipeline_schedule
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.schedule import Schedule
from tardigrad.scheduling.traffic import Copies, Traffic, traffic
from tardigrad.scheduling.validate import validate

__all__ = [
    "Copies",
    "Recorder",
    "Schedule",
    "Traffic",
    "check_control",
    "control",
    "held_back",
    "pipeline_schedule",
    "schedule",
    "traffic",
    "validate",
]
