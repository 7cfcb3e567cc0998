"""Many consecutive updates of an element-wise rule in one kernel, made from the rule's own code."""

from tardigrad.engine.kernels.cpp import CppKernel, NoCompiler
from tardigrad.engine.kernels.graph import NotElementwise
from tardigrad.engine.kernels.trace import Program, trace

__all__ = ["CppKernel", "NoCompiler", "NotElementwise", "Program", "trace"]
