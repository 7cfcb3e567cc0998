"""What to run on a cluster: by schedules alone, or by training candidates; studies of schedules.

Every figure comes from `Setting.measure`.
"""
