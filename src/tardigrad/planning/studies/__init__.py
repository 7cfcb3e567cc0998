"""Published figures that schedules alone reproduce, and a study of real traces, one a file."""

from tardigrad.planning.studies.backup_workers import backup_workers
from tardigrad.planning.studies.gap_aware_speedup import gap_aware_speedup
from tardigrad.planning.studies.layer_staleness import layer_staleness
from tardigrad.planning.studies.psp_times import psp_times
from tardigrad.planning.studies.stragglers import stragglers

__all__ = ["backup_workers", "gap_aware_speedup", "layer_staleness", "psp_times", "stragglers"]
