"""One protocol for the simulator, the fault simulation and Ray: no I/O, no threads, no clock.

`ShardControl` and `WorkerControl` are what all three drivers feed with events. `ShardSession` and
`WorkerSession` are around them where processes die and messages are lost, and `Coordinator` decides
what a run's driver does.
"""
