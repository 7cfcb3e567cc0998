"""The papers' claims: studies that test them, cell by cell, and the ledger of verdicts."""

from tardigrad.reproduce.claims import Claim, LedgerRow, Verdict
from tardigrad.reproduce.ledger import CLAIMS, STUDIES, ledger
from tardigrad.reproduce.study import Study, StudyCell

__all__ = ["CLAIMS", "STUDIES", "Claim", "LedgerRow", "Study", "StudyCell", "Verdict", "ledger"]
