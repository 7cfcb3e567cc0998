"""Tells, after a run of many random experiments, what they were made of."""

from typing import Any

from tests.fuzz.fuzz_checks import COVERED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    cases = sum(COVERED.get("outcomes", {}).values())
    if cases < 100:
        return
    terminalreporter.section(f"{cases:,} random experiments")
    for part, counts in COVERED.items():
        line = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        terminalreporter.write_line(f"{part}: {line}")
