"""The 24 claims, and what tests each."""

from pathlib import Path

from tardigrad.reproduce.adam_transformer import judge_adam, transformer
from tardigrad.reproduce.b_fasgd import fig_3, judge_copies, judge_pulls, judge_pushes
from tardigrad.reproduce.backup_training import backup_over_async, judge_backup
from tardigrad.reproduce.claims import Claim, LedgerRow, judged
from tardigrad.reproduce.dc_asgd import dc_asgd_cifar, judge_dc_asgd
from tardigrad.reproduce.dc_asgd_time import judge_time, update_time
from tardigrad.reproduce.fasgd import fig_1, fig_2, judge_fig_1, judge_fig_2
from tardigrad.reproduce.gamma_tails import judge_tails, tails
from tardigrad.reproduce.gap_and_delay import gap_along, judge_gap
from tardigrad.reproduce.gap_aware_more import (
    judge_tuned,
    judge_unequal,
    judge_variants,
    tuned,
    unequal,
    variants,
)
from tardigrad.reproduce.gap_aware_tables import judge_table, table_4, table_5
from tardigrad.reproduce.mnist_staleness import judge_late, mnist_staleness
from tardigrad.reproduce.newer import NEWER
from tardigrad.reproduce.psp_accuracy import accuracy, judge_accuracy
from tardigrad.reproduce.schedule_studies import (
    judge_layers,
    judge_speedup,
    judge_split,
    judge_times,
    layers_study,
    speedup_study,
    split_study,
    stragglers_study,
    times_study,
)
from tardigrad.reproduce.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        fig_1,
        fig_2,
        fig_3,
        variants,
        table_4,
        table_5,
        tuned,
        transformer,
        gap_along,
        speedup_study,
        unequal,
        tails,
        dc_asgd_cifar,
        update_time,
        times_study,
        accuracy,
        mnist_staleness,
        split_study,
        layers_study,
        backup_over_async,
        stragglers_study,
        *NEWER,
    )
}
"""By name, in the order of the claims; then those that no claim of the five papers asks for."""

FASGD, GAP, DC, PSP, BACKUP = "FASGD", "Gap-Aware", "DC-ASGD", "PSP", "Backup workers"

CLAIMS = (
    Claim(
        "F1",
        FASGD,
        "FASGD ends below SASGD in all four panels of Figure 1 (μλ = 128)",
        "lower in all four",
        fig_1.name,
        judge_fig_1,
    ),
    Claim(
        "F2",
        FASGD,
        "FASGD ends below SASGD for λ = 250 to 10,000, by more as λ grows (Figure 2)",
        "lower in all four, growing",
        fig_2.name,
        judge_fig_2,
    ),
    Claim(
        "F3",
        FASGD,
        "B-FASGD cuts pulls to a tenth with little harm, and so the total to a fifth",
        "pulls ÷ 10, total ÷ 5",
        fig_3.name,
        judge_pulls,
    ),
    Claim(
        "F4",
        FASGD,
        "pushes cannot be dropped even a little",
        "training soon diverges",
        fig_3.name,
        judge_pushes,
    ),
    Claim(
        "F5",
        FASGD,
        "copies against potential copies bend downwards (Figure 3)",
        "negative second derivative",
        fig_3.name,
        judge_copies,
    ),
    Claim(
        "G1",
        GAP,
        "the parameter-wise gap ends better than layer-wise and global, or alike (Figures 1, 5)",
        "best or similar",
        variants.name,
        judge_variants,
    ),
    Claim(
        "G2",
        GAP,
        "ResNet-20: DANA-GA ends highest of seven rules, GA above SA (Table 4)",
        "N = 32: SA 85.59, GA 87.92, DANA-GA 91.15",
        table_4.name,
        judge_table,
    ),
    Claim(
        "G3",
        GAP,
        "WideResNet: DANA-GA ends highest of seven rules, GA above SA (Table 5)",
        "N = 32: SA 88.7, GA 92.35, DANA-GA 94.27",
        table_5.name,
        judge_table,
    ),
    Claim(
        "G4",
        GAP,
        "WideResNet on CIFAR-100: the same order (Table 6)",
        "N = 32: SA 65.67, GA 70.64, DANA-GA 74.33",
        untestable="no package of a registry is known that carries CIFAR-100 whole",
    ),
    Claim(
        "G5",
        GAP,
        "tuned ASGD does not beat GA and DANA-GA (Table 1)",
        "88.0 against 87.9 and 91.1",
        tuned.name,
        judge_tuned,
    ),
    Claim(
        "G6",
        GAP,
        "Adam-GA trains a transformer where Adam and Adam-SA fail (Table 2)",
        "perplexity 26.5 against 1,645 and 1,211",
        transformer.name,
        judge_adam,
    ),
    Claim(
        "G7",
        GAP,
        "ResNet-50 on ImageNet with up to 128 workers (Table 3)",
        "DANA-GA 72.18% at N = 128",
        untestable="ImageNet may not be passed on, and 90 epochs of ResNet-50 take days of a GPU",
    ),
    Claim(
        "G8",
        GAP,
        "the gap is below the delay, smallest for DANA-GA (Figure 4)",
        "constantly lower",
        gap_along.name,
        judge_gap,
    ),
    Claim(
        "G9",
        GAP,
        "asynchronous is up to 21% faster with equal machines, 6 times with different ones",
        "+21%, 6×",
        speedup_study.name,
        judge_speedup,
    ),
    Claim(
        "G10",
        GAP,
        "with machines of different speeds too, and ending higher than with equal ones (Figure 13)",
        "GA over SA, DANA-GA best",
        unequal.name,
        judge_unequal,
    ),
    Claim(
        "G11",
        GAP,
        "a step takes 1.25 times the mean in 1% (equal machines) and 27.9% (different ones)",
        "1%, 27.9%",
        tails.name,
        judge_tails,
    ),
    Claim(
        "D1",
        DC,
        "both forms of DC-ASGD end above ASGD and SSGD and catch up with sequential SGD",
        "the digits are lost in the text at hand",
        dc_asgd_cifar.name,
        judge_dc_asgd,
    ),
    Claim(
        "D2",
        DC,
        "an update takes about as long as ASGD's",
        "very similar",
        update_time.name,
        judge_time,
    ),
    Claim(
        "P1",
        PSP,
        "partial pushing saves 17% of the time under rare delays, with partial pulling 30%",
        "199.97, 164.97, 139.95, 136.54 min",
        times_study.name,
        judge_times,
    ),
    Claim(
        "P2",
        PSP,
        "without delays, partial pushing and pulling lose no accuracy (28 of 32, 90%)",
        "curves alike",
        accuracy.name,
        judge_accuracy,
    ),
    Claim(
        "B1",
        BACKUP,
        "staleness harms: MNIST CNN at staleness 0, 20, 50",
        "error 0.36, 0.47, 0.79%",
        mnist_staleness.name,
        judge_late,
    ),
    Claim(
        "B2",
        BACKUP,
        "of 100 machines 96 workers + 4 backups are best",
        "96 + 4",
        split_study.name,
        judge_split,
    ),
    Claim(
        "B3",
        BACKUP,
        "lower layers are staler: 40 workers, 18 layers",
        "14.5 (top) to 39.0 (bottom)",
        layers_study.name,
        judge_layers,
    ),
    Claim(
        "B4",
        BACKUP,
        "synchronous training with backups ends better than asynchronous",
        "Inception +0.5%, PixelCNN lower NLL",
        backup_over_async.name,
        judge_backup,
    ),
)


def ledger(results: Path) -> list[LedgerRow]:
    """Every claim with its verdict, by the cells in a folder of results."""
    return [judged(claim, STUDIES, results) for claim in CLAIMS]
