"""How long until the model is this good, and what it costs."""

import math
import statistics
from dataclasses import dataclass

from tardigrad.clusters import TimedCluster
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.planning.entrants import DIVERGED, Entrant, Race, paired_times, slower
from tardigrad.planning.goal import Target

HOUR_S = 3600.0
SHOWN = 12
"""Candidates in the table."""


@dataclass(frozen=True)
class Priced:
    """One number of workers: its cluster, and who raced there."""

    cluster: TimedCluster
    race: Race


@dataclass(frozen=True)
class TargetResults:
    """Races to the target, one for each number of workers that was asked about.

    Args:
        price: of a worker's hour; None: hours are told.
        untried: numbers of workers that were asked about and that the budget did not last for.
        in_vain: those of which nothing came otherwise, with the reason.
    """

    target: Target
    sizes: tuple[Priced, ...]
    price: float | None = None
    untried: tuple[int, ...] = ()
    in_vain: tuple[tuple[int, str], ...] = ()

    @property
    def best(self) -> Priced:
        """The number of workers whose winner is the fastest, by the seeds that all of them had."""
        seeds = min(len(one.race.entrants[0].trials) for one in self.sizes)
        return min(self.sizes, key=lambda one: one.race.entrants[0].first(seeds).by_time)

    @property
    def winner(self) -> Entrant:
        return self.best.race.entrants[0]

    @property
    def cheapest(self) -> Entrant:
        """The winner that costs least, whatever its time, of those that reach the target as surely
        as the fastest does."""
        winners = [one.race.entrants[0] for one in self.sizes]
        return min((e for e in winners if e.misses <= self.winner.misses), key=self.cost)

    def pale(self, entrant: Entrant) -> bool:
        """Whether it was shown to be slower, or misses the target more often than the winner: its
        mean is of fewer seeds, perhaps of the easy ones."""
        return bool(entrant.out) or entrant.misses > self.winner.misses

    @property
    def undecided(self) -> list[Entrant]:
        """Who might yet be faster than the winner there: the budget was spent too early."""
        return [entrant for one in self.sizes for entrant in one.race.undecided]

    def cost(self, entrant: Entrant, seconds: float | None = None) -> float:
        """Of all its workers from beginning to end; in workers' hours where there is no price."""
        hours = entrant.candidate.workers * (entrant.mean_s if seconds is None else seconds)
        return hours / HOUR_S * (1.0 if self.price is None else self.price)

    @property
    def cost_name(self) -> str:
        return "workers' hours" if self.price is None else "cost"

    def entrants(self) -> list[Entrant]:
        """Those that reached the target, the winner first, the others by time."""
        each = [e for one in self.sizes for e in one.race.entrants if e.reached]
        return sorted(each, key=lambda e: (e is not self.winner, e.misses, self.ratio(e)))

    def ratio(self, entrant: Entrant) -> float:
        """Its time over the winner's, of the seeds with which both reached the target together."""
        pairs = paired_times(entrant, self.winner)
        return sum(own for own, _ in pairs) / sum(its for _, its in pairs) if pairs else math.inf

    def table(self) -> ResultTable:
        several = len(self.sizes) > 1
        tried = [e for one in self.sizes for e in one.race.entrants]
        rows = [self._row(entrant, several) for entrant in self.entrants()[:SHOWN]]
        notes = [
            f"{len(tried)} candidates, {sum(one.race.trials for one in self.sizes)} runs in "
            "virtual time; ± standard deviation over seeds; ÷ winner: by the seeds that both had",
            *self._not_shown(tried),
            *self._left_open(),
        ]
        if several:
            notes.append("fewer workers are the first ones of the cluster")
        return ResultTable(
            title=f"Time to {self.target} on {self.best.cluster.workers} workers"
            if not several
            else f"Time to {self.target} by the number of workers",
            columns=(
                *(("workers",) if several else ()),
                *("policy", "rule", "lr", "seconds", "± s", "÷ winner", self.cost_name, "updates"),
                *("mean delay", "MB", "seeds"),
            ),
            rows=tuple(rows),
            notes=tuple(notes),
            keys=4 if several else 3,
        )

    def _not_shown(self, tried: list[Entrant]) -> list[str]:
        """The table has the first `SHOWN` of those that reached the target."""
        shown = self.entrants()[:SHOWN]
        hidden = [e for e in tried if e not in shown]
        late = [e for e in hidden if e.out and not e.reached]
        diverged = sum(e.out == DIVERGED for e in late)
        counted = {
            "that were slower": len([e for e in hidden if e.reached and e not in self.undecided]),
            "that took too long before they reached it": len(late) - diverged,
            "that diverged": diverged,
            "that are not decided": len([e for e in hidden if e in self.undecided]),
        }
        parts = [f"{number} {words}" for words, number in counted.items() if number]
        return [f"not shown: {', '.join(parts)}"] if parts else []

    def _row(self, entrant: Entrant, several: bool) -> tuple[Cell, ...]:
        reached, candidate = entrant.reached, entrant.candidate
        spread = entrant.spread_s
        seeds = f"{len(reached)} of {len(entrant.trials)}" if entrant.misses else len(reached)
        return (
            *((candidate.workers,) if several else ()),
            candidate.measured.label,
            str(candidate.tuned["name"]),
            candidate.rate,
            entrant.mean_s,
            None if math.isnan(spread) else spread,
            None if math.isinf(self.ratio(entrant)) else self.ratio(entrant),
            self.cost(entrant),
            round(statistics.fmean(point.updates for point in reached)),
            statistics.fmean(point.delay for point in reached),
            statistics.fmean(point.bytes for point in reached) / 1e6,
            seeds,
        )

    def why(self) -> str:
        """A paragraph: who wins, by how much, how sure that is, and what it costs."""
        race, winner = self.best.race, self.winner
        spread = "" if math.isnan(winner.spread_s) else f" ± {winner.spread_s:.2g}"
        reached = _seeds(len(winner.reached), len(winner.trials))
        workers = winner.candidate.workers
        said = [
            f"{winner.candidate.label} reaches {self.target} first, in {winner.mean_s:.4g}{spread} "
            f"s with {reached}, for {self._money(self.cost(winner))} "
            f"({workers} worker{'s' * (workers > 1)})."
        ]
        said += self._runner_up(race, winner)
        synchronous = [e for e in race.entrants if _waits(e) and e.reached and e is not winner]
        if synchronous and not _waits(winner):
            best = min(synchronous, key=self.ratio)
            said.append(
                f"The best without late gradients, {best.candidate.label}, takes "
                f"{self.ratio(best):.2f} times as long."
            )
        if winner.misses:
            said.append("It missed the target with the others: an easier target is safer.")
        if self.cheapest is not winner:
            other = self.cheapest
            said.append(
                f"Cheapest is {other.candidate.workers} workers: {self._money(self.cost(other))} "
                f"in {other.mean_s:.4g} s ({other.candidate.label})."
            )
        return " ".join([*said, *(f"{left[0].upper()}{left[1:]}." for left in self._left_open())])

    def _left_open(self) -> list[str]:
        """What a larger budget would still find out."""
        out = []
        if self.undecided:
            tried = sum(len(one.race.entrants) for one in self.sizes)
            out.append(
                f"{len(self.undecided)} of {tried} candidates had not been shown to be slower when "
                "the budget was spent: a larger --budget may decide them"
            )
        if self.untried:
            sizes = ", ".join(map(str, sorted(self.untried)))
            out.append(f"the budget was spent before {sizes} workers were tried")
        return out + [f"with {workers} workers, {reason}" for workers, reason in self.in_vain]

    def _runner_up(self, race: Race, winner: Entrant) -> list[str]:
        others = [e for e in race.entrants[1:] if e.reached]
        if not others:
            return [] if race.undecided else ["No other candidate came near it."]
        second = min(others, key=lambda e: (e.misses, self.ratio(e)))
        next_one = f"The next, {second.candidate.label},"
        if second.misses > winner.misses:
            missed = _seeds(second.misses, len(second.trials))
            return [f"{next_one} missed the target with {missed}."]
        took = f"took {self.ratio(second) - 1:.0%} longer with the same seeds"
        if second.out:
            return [f"{next_one} {took}."]
        if slower(second, winner):
            return [f"{next_one} {took}; it is slower, paired by seed."]
        if second in race.undecided:
            return [f"{next_one} {took}: too few to call it slower when the budget was spent."]
        return [f"{next_one} {took}: {_seeds(race.seeds)} could not tell them apart."]

    def _money(self, cost: float) -> str:
        return f"{cost:.3g} workers' hours" if self.price is None else f"a cost of {cost:.3g}"

    def data(self) -> dict[str, object]:
        """The winner and every candidate, for JSON."""
        return {
            "target": str(self.target),
            "price": self.price,
            "winner": self._one(self.winner),
            "clear": self.best.race.clear and not self.undecided and not self.untried,
            "budget_spent": any(one.race.spent for one in self.sizes),
            "undecided": len(self.undecided),
            "untried_workers": sorted(self.untried),
            "in_vain": {str(workers): reason for workers, reason in self.in_vain},
            "candidates": [self._one(e) for one in self.sizes for e in one.race.entrants],
        }

    def _one(self, entrant: Entrant) -> dict[str, object]:
        reached, candidate = entrant.reached, entrant.candidate
        known = bool(reached)
        return {
            "workers": candidate.workers,
            "policy": candidate.measured.label,
            "rule": dict(candidate.rule),
            **({"work": dict(candidate.work)} if candidate.work else {}),
            "seconds": entrant.mean_s if known else None,
            "seconds_by_seed": [
                trial.reached.time_s if trial.reached else None for trial in entrant.trials
            ],
            "cost": self.cost(entrant) if known else None,
            "mean_delay": statistics.fmean(p.delay for p in reached) if known else None,
            "bytes": statistics.fmean(p.bytes for p in reached) if known else None,
            "given_up": entrant.out or None,
            "undecided": entrant in self.undecided,
        }


def _waits(entrant: Entrant) -> bool:
    return entrant.candidate.measured.summary.delay.most == 0


def _seeds(count: int, of: int = 0) -> str:
    if count < of:
        return f"{count} of {of} seeds"
    return "one seed" if count == 1 else f"{count} seeds"
