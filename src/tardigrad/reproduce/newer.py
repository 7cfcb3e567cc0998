"""Studies of methods newer than the five papers: each with what was expected and what came."""

from tardigrad.reproduce.async_diloco import async_diloco
from tardigrad.reproduce.federated import federated
from tardigrad.reproduce.study import Study

NEWER: tuple[Study, ...] = (async_diloco, federated)
