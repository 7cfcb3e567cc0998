"""Logs of step times as people have them: what each column means is found, and said."""

from tardigrad.clusters.logs.step_log import StepLog, read_step_log

__all__ = ["StepLog", "read_step_log"]
