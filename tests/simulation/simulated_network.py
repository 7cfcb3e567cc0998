"""A network that loses, repeats, delays and reorders, and is cut in one direction or both."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.simulated_time import SimulatedTime


@dataclass
class Weather:
    """What the network does all the time."""

    delay_s: float = 0.01
    jitter: float = 1.0
    """The delay's random part, in times of `delay_s`; messages overtake each other."""
    lost: float = 0.0
    repeated: float = 0.0
    call_lost: float = 0.0
    """Of a driver's calls and of their answers."""


class Partition(NamedTuple):
    """Nothing gets from these hosts to those; an empty set means all the others."""

    senders: frozenset[str]
    receivers: frozenset[str]
    until_s: float

    def stops(self, sender: str, receiver: str) -> bool:
        return (not self.senders or sender in self.senders) and (
            not self.receivers or receiver in self.receivers
        )


class Network:
    def __init__(self, time: SimulatedTime, weather: Weather) -> None:
        self.time, self.weather = time, weather
        self.partitions: list[Partition] = []
        self._last_call_s: dict[Hashable, float] = {}

    def cut_off(
        self, senders: set[str], receivers: set[str], seconds: float, both_ways: bool
    ) -> None:
        until_s = self.time.now_s + seconds
        self.partitions.append(Partition(frozenset(senders), frozenset(receivers), until_s))
        if both_ways:
            self.partitions.append(Partition(frozenset(receivers), frozenset(senders), until_s))

    def reaches(self, sender: str, receiver: str) -> bool:
        if sender == receiver or not self.partitions:
            return True
        now_s = self.time.now_s
        self.partitions = [p for p in self.partitions if p.until_s > now_s]
        return not any(p.stops(sender, receiver) for p in self.partitions)

    def send(self, sender: str, receiver: str, deliver: Callable[[], None]) -> None:
        """A message between a worker and a shard: it may be lost, come twice, overtake others."""
        draw, weather = self.time.random, self.weather

        def arrive() -> None:
            if self.reaches(sender, receiver):
                deliver()

        for _ in range(2 if draw.random() < weather.repeated else 1):
            if draw.random() < weather.lost or not self.reaches(sender, receiver):
                continue
            self.time.after(self._delay_s(), arrive)

    def call(
        self, caller: str, target: str, channel: Hashable, deliver: Callable[[], None]
    ) -> None:
        """A driver's call, or its answer. It may be lost, or come after a partition; but calls of a
        `channel` arrive once and in order, which Ray sees to."""
        if self.time.random.random() < self.weather.call_lost:
            return
        due_s = max(self.time.now_s + self._delay_s(), self._last_call_s.get(channel, 0.0))
        self._last_call_s[channel] = due_s

        def arrive() -> None:
            if self.reaches(caller, target):
                deliver()
            elif self.time.random.random() < 0.5:
                again_s = max(p.until_s for p in self.partitions) - self.time.now_s
                self._last_call_s[channel] = self.time.now_s + again_s
                self.time.after(again_s, arrive)

        self.time.after(due_s - self.time.now_s, arrive)

    def _delay_s(self) -> float:
        weather = self.weather
        return weather.delay_s * (1 + weather.jitter * self.time.random.expovariate(1.0))
