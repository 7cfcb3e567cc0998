"""Pages that are written from the code: every rule and policy with its formula, its arguments and a
picture; every public name; every claim with its verdict."""

import contextlib
import inspect
import io
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import tardigrad as tg
from tardigrad.cli.listed import LISTS
from tardigrad.experiment.described import described
from tardigrad.experiment.spec import STRUCTURE
from tardigrad.report import draw_timeline
from tardigrad.reproduce import ledger
from tardigrad.tasks import quadratic

TABLES = {
    "rules": "How a shard applies what arrives: τ is staleness (delay + 1), g the gradient.",
    "policies": "Who waits for whom, what is dropped, when a shard applies.",
    "clusters": "When things happen: how long steps take.",
    "links": "What crosses the wire between workers and shards.",
    "codecs": "In which form gradients are pushed.",
    "works": "What a worker does between a pull and a push.",
    "tasks": "What is learned.",
    "rates": "Learning rates that change along the run.",
    "weights": "How much a late gradient counts, by its staleness τ.",
}
POLICY_EXAMPLES = {
    "async": tg.Async(),
    "sync": tg.Sync(),
    "backup": tg.Backup(backups=1),
    "deadline": tg.Deadline(timeout_s=130.0),
    "partial": tg.Partial(push=3),
    "soft_sync": tg.SoftSync(groups=2),
    "stale_synchronous": tg.StaleSynchronous(bound=2),
    "bounded_delay": tg.BoundedDelay(max_delay=2),
    "ringmaster": tg.Ringmaster(bound=4, stop=True),
    "rennala": tg.Rennala(batch=4, stop=True),
    "malenia": tg.Malenia(batch=6),
    "quorum": tg.Quorum(size=3, grace_s=40.0),
    "ramp_up": tg.RampUp(tg.Async(), updates=8),
}
LR = 0.02


def table_page(table: str) -> str:
    """One heading a name."""
    listed, out = LISTS[table], [f"# {table.capitalize()}", "", TABLES[table], ""]
    drawn = {"policies": POLICY_EXAMPLES.keys(), "rules": _plain_rules().keys()}.get(table, set())
    for name in listed.registry.makers:
        told = described(STRUCTURE, listed.registry, name)
        first, _, rest = told.text.partition("\n")
        out += [f"## {name}", "", f"```text\n{first}\n```" if table == "rules" else first, ""]
        out += [rest.strip(), ""]
        if name in drawn:
            out += [f"![{name}](pictures/{table}-{name}.png)", ""]
        if told.arguments:
            out += ["| argument | takes | default | meaning |", "|---|---|---|---|"]
            out += [
                f"| `{a.name}` | {_cell(a.takes)} | {_code(a.default)} | {_cell(a.meaning)} |"
                for a in told.arguments
            ]
            out.append("")
    return "\n".join(out)


def claims_page(results: Path) -> str:
    """The papers' claims one by one: a table of eight columns would be too wide to read."""
    out, paper = ["# Claims", "", *CLAIMS_INTRODUCTION, ""], ""
    for row in ledger(results):
        claim, verdict = row.claim, row.verdict
        if claim.paper != paper:
            paper = claim.paper
            out += [f"## {paper}", ""]
        form = f" ({row.form} form)" if row.form == "quick" else ""
        told = {"verdict": f"**{verdict.text}**{form}", "published": claim.published}
        told |= {"ours": verdict.ours, "missing": row.empty.removeprefix("empty: ")}
        told["command"] = f"`{row.command}` ({row.there})" if row.command else ""
        out += [f"### {claim.id}", "", f"| claim | {_cell(claim.says)} |", "|---|---|"]
        out += [f"| {name} | {_cell(text)} |" for name, text in told.items() if text]
        out.append("")
    return "\n".join(out)


CLAIMS_INTRODUCTION = (
    "What five papers claim and what was measured here. Each verdict is computed from runs that",
    "are kept in the project; `tardigrad claims` prints the same. A *quick form* is a small",
    "stand-in that shows a direction, not the paper's figures. [Kept results](results.md) has all",
    "of this as one table, and what else was measured.",
)


def pictures(folder: Path) -> Iterator[Path]:
    """One of each policy and of each rule that needs only a rate."""
    for name, policy in POLICY_EXAMPLES.items():
        path = folder / f"policies-{name}.png"
        cluster = tg.Gamma(workers=5, heterogeneous=True)
        made = tg.schedule(policy, cluster, updates=80, seed=1)
        draw_timeline(made, path, last_s=1500.0, title=repr(policy))
        yield path
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=16), updates=600, seed=0)
    task = quadratic(dimension=50)
    for name, rule in _plain_rules().items():
        path = folder / f"rules-{name}.png"
        _draw_rule(tg.execute(schedule, task, rule, "exact", evaluation=10), name, path)
        yield path


def _plain_rules() -> dict[str, tg.Rule]:
    """Those that take a rate and need no more."""
    made = {}
    for name, maker in LISTS["rules"].registry.makers.items():
        needed = [p for p in inspect.signature(maker).parameters.values() if p.default is p.empty]
        if [p.name for p in needed] == ["lr"]:
            made[name] = maker(lr=LR)
    return made


def _draw_rule(run: tg.Run, name: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(run.history.column("update"), run.history.column("validation_loss"), color="#2a7f9e")
    axes.set(xlabel="update", ylabel="loss", yscale="log")
    axes.set_title(f"{name}(lr={LR}) on a noisy bowl, 16 asynchronous workers", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def api_page() -> str:
    """Every public name, by the room that it lives in."""
    out = ["# Python", "", "`import tardigrad as tg` has all of these.", ""]
    for place, names in tg.PLACES.items():
        out += [f"## {place.removeprefix('tardigrad.')}", ""]
        for name in names:
            made = getattr(import_module(place), name)
            out += [f"::: {getattr(made, '__module__', place)}.{name}", ""]
    return "\n".join(out)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if "claims" in sys.argv:
            print(claims_page(Path("results")))
        else:
            for table in TABLES:
                print(table_page(table))
    sys.stdout.write(out.getvalue())
