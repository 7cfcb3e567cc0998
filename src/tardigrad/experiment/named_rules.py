"""Rules to compare, as people name them: "sgd,fasgd:lr=0.005,my_rule.py:mine:lr=0.1"."""

from collections.abc import Mapping, Sequence

from tardigrad.core.checks import require
from tardigrad.experiment.spec import RULE, STRUCTURE
from tardigrad.experiment.spec_data import Table, changed
from tardigrad.experiment.structure import Plain, parameters_of
from tardigrad.rules import Rule

KEPT = ("lr", "weight_decay", "ema", "no_decay", "rate_scale")
"""What a compared rule takes over from the spec's rule unless it says its own."""


def rules_named(
    rules: str | Sequence[str] | Mapping[str, Rule | str | Table], base: Table | None = None
) -> dict[str, Rule | Table]:
    """By label, each rule or its table; texts take over from `base` what they do not say."""
    base = base or {}
    if isinstance(rules, Mapping):
        out = {str(label): _named(str(label), one, base) for label, one in rules.items()}
    else:
        texts = split(rules, ",") if isinstance(rules, str) else list(rules)
        for text in texts:
            require(texts.count(text) == 1, f"rules names {text!r} twice")
        out = {str(text): _named(str(text), text, base) for text in texts}
    require(bool(out), "rules is empty: name some, such as sgd,fasgd:lr=0.005")
    return out


def _named(label: str, rule: Rule | str | Table, base: Table) -> Rule | Table:
    if isinstance(rule, str):
        return table_of(rule, base)
    require(
        isinstance(rule, Rule | Mapping),
        f"rules[{label!r}] must be a rule such as tg.rules.sgd(0.1), or a text such as "
        f'"sgd:lr=0.1", got {rule!r}',
    )
    return rule


def table_of(text: str, base: Table) -> Table:
    """What one text says. Colons part a rule's name and its options.

    An option holds =: so what follows the first colon without = belongs to the name, unless a
    rule's name stands before it.
    """
    name, *options = split(text, ":") or [""]
    if options and "=" not in options[0] and name not in RULE.makers:
        name = f"{name}:{options.pop(0)}"
    said = [option.partition("=")[0].strip() for option in options]
    require(
        "name" not in said,
        f"{text!r} says two names of a rule: write the one that is meant before the first colon, "
        "as in sgd:lr=0.02",
    )
    for key in said:
        require(said.count(key) == 1, f"{text!r} says {key} twice: keep one")
    rule: dict[str, Plain] = {"name": name}
    kept = [key for key in KEPT if key in base and (key != "lr" or takes_rate(name))]
    return changed(rule | {key: base[key] for key in kept}, options)


def takes_rate(name: str) -> bool:
    """Whether a rule takes lr; one of the user's own may have its rate inside."""
    maker, _ = STRUCTURE.choose(RULE, "rule", name)
    taken, takes_any = parameters_of(maker, "rule")
    return takes_any or "lr" in taken


def split(text: str, by: str) -> list[str]:
    """Split at `by`, but not inside brackets, which are lists and tables, nor inside quotes."""
    parts, depth, quote, before = [""], 0, "", "="
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and before in "=[{, ":  # elsewhere it is an apostrophe
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        before = letter
        if letter == by and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
