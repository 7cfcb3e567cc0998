"""Questions that schedules answer without tensors: what to run on a cluster, and published studies.

Every figure comes from `Setting.measure`.
"""
