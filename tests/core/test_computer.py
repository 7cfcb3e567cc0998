"""Which computer this is."""

from pathlib import Path

import pytest
import torch

from tardigrad.core.computer import computer, processor

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Processor

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 17
"""
GRAVITON = "processor : 0\nCPU implementer : 0x41\nCPU variant : 0x1\nCPU part : 0xd40\n"


@pytest.mark.parametrize(
    ("said", "found"), [(XEON, "GenuineIntel 6/143"), (GRAVITON, "0x41 0x1/0xd40")]
)
def test_a_processor_is_told_by_maker_and_model(said: str, found: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(said)
    assert processor(file) == found


def test_a_system_that_does_not_tell_has_a_processor_too(tmp_path: Path) -> None:
    assert processor(tmp_path / "nothing")


def test_a_computer_is_its_processor_and_what_computes_on_it() -> None:
    assert computer().startswith(processor())
    assert torch.__version__ in computer()
