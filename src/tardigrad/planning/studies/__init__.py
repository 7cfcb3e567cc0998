"""Published figures that schedules alone reproduce, one a file."""

from collections.abc import Callable
from pathlib import Path

from tardigrad.core.result_table import ResultTable
from tardigrad.planning.studies.backup_workers import backup_workers
from tardigrad.planning.studies.gap_aware_speedup import gap_aware_speedup
from tardigrad.planning.studies.layer_staleness import layer_staleness
from tardigrad.planning.studies.psp_times import psp_times

STUDIES: dict[str, Callable[[Path], ResultTable]] = {
    "gap-aware-speedup": gap_aware_speedup,
    "backup-workers": backup_workers,
    "psp-times": psp_times,
    "layer-staleness": layer_staleness,
}

__all__ = ["STUDIES"]
