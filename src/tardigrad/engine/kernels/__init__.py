"""Many consecutive updates of an element-wise rule in one kernel, made from the rule's own code."""

from tardigrad.engine.kernels.cpp import BoundWindows, CppKernel
from tardigrad.engine.kernels.trace import Program, trace

__all__ = ["BoundWindows", "CppKernel", "Program", "trace"]
