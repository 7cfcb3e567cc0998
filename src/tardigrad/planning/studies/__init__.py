"""Published figures that schedules alone reproduce, and a study of real traces, one a file."""

from collections.abc import Callable

from tardigrad.core.result_table import ResultTable
from tardigrad.planning.studies.backup_workers import backup_workers
from tardigrad.planning.studies.gap_aware_speedup import gap_aware_speedup
from tardigrad.planning.studies.layer_staleness import layer_staleness
from tardigrad.planning.studies.psp_times import psp_times
from tardigrad.planning.studies.stragglers import stragglers

STUDIES: dict[str, Callable[..., ResultTable]] = {
    "gap-aware-speedup": gap_aware_speedup,
    "backup-workers": backup_workers,
    "psp-times": psp_times,
    "layer-staleness": layer_staleness,
    "stragglers": stragglers,
}

__all__ = ["STUDIES"]
