"""Studies of methods newer than the five papers: each with what was expected and what was found."""

from tardigrad.reproduce.async_diloco import async_diloco
from tardigrad.reproduce.compression import compression
from tardigrad.reproduce.federated import federated
from tardigrad.reproduce.study import Study
from tardigrad.reproduce.time_to_target import time_to_target

NEWER: tuple[Study, ...] = (async_diloco, time_to_target, federated, compression)
