"""Sending what a user wrote to other processes: by value, and refused by name where it cannot be.

Actors import what is installed; a file of the user's own may not be there, or not by that name, so
its code travels with the objects.
"""

import functools
import io
import threading
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray.cloudpickle
from torch import Tensor, nn

from tardigrad.core.own_code import own_modules
from tardigrad.tasks import Task

cloudpickle: Any = ray.cloudpickle


_sent: Counter[str] = Counter()
"""How many blocks want each module to travel: runs in other threads may be among them."""
_lock = threading.Lock()


@contextmanager
def own_code_sent() -> Iterator[None]:
    """Within the block, code that was loaded by name travels with what is sent."""
    modules = own_modules()
    with _lock:
        for module in modules:
            _sent[module.__name__] += 1
            cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                _sent[module.__name__] -= 1
                if not _sent[module.__name__]:
                    cloudpickle.unregister_pickle_by_value(module)


def check_sendable(**parts: object) -> None:
    """Refuse what cannot be sent to another process, before one is started."""
    with own_code_sent():
        for name, part in parts.items():
            error = _why_not(part)
            if error is not None:
                path, what = _deepest(name, part)
                raise ValueError(
                    f"{path} is {_kind(what)}, which cannot be sent to other processes "
                    f"({' '.join(str(error).split())}): make it where it is used, from what can "
                    "be sent, such as a path or a seed"
                ) from error


_on_host = threading.local()
"""Whether this thread opens what was on a GPU in the host's memory."""


class TaskPacker:
    """Sends a task from one GPU to another by way of the host's memory."""

    def pack(self, task: Task) -> bytes:
        packed = io.BytesIO()
        _ByHost(packed).dump(task)
        return packed.getvalue()

    def unpack(self, packed: bytes, on_host: bool) -> Task:
        _on_host.now = on_host
        try:
            task: Task = cloudpickle.loads(packed)
        finally:
            _on_host.now = False
        return task


class _ByHost(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in (Tensor, nn.Parameter) and obj.device.type != "cpu":
            is_parameter = type(obj) is nn.Parameter
            return _put_back, (obj.detach().cpu(), str(obj.device), is_parameter, obj.requires_grad)
        return super().reducer_override(obj)


def _put_back(tensor: Tensor, device: str, is_parameter: bool, learned: bool) -> Tensor:
    there = tensor if _on_host.now else tensor.to(device)
    return nn.Parameter(there, learned) if is_parameter else there.requires_grad_(learned)


class _Trial(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles all but the numbers in arrays, which are large and never the reason."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in (Tensor, nn.Parameter) or (type(obj) is np.ndarray and obj.dtype != object):
            return int, ()
        return super().reducer_override(obj)


def _why_not(part: object) -> Exception | None:
    try:
        _Trial(io.BytesIO()).dump(part)
    except RecursionError:
        return None  # what is nested deeply may still be sent
    except Exception as error:
        return error
    return None


def _deepest(path: str, part: object) -> tuple[str, object]:
    """The innermost part that cannot be sent, and the way to it."""
    seen = {id(part)}
    while True:
        for step, inner in _inside(part):
            if id(inner) not in seen and _why_not(inner) is not None:
                seen.add(id(inner))
                path, part = f"{path}{step}", inner
                break
        else:
            return path, part


def _inside(part: object) -> Iterator[tuple[str, object]]:
    if isinstance(part, types.MethodType):
        yield ".__self__", part.__self__
    elif isinstance(part, types.FunctionType):
        names = part.__code__.co_freevars
        for name, cell in zip(names, part.__closure__ or (), strict=True):
            try:
                yield f" → {name}", cell.cell_contents
            except ValueError:  # a name that the function will only get later
                continue
        for name in part.__code__.co_names:
            if name in part.__globals__:
                yield f" → {name}", part.__globals__[name]
    elif isinstance(part, functools.partial):
        yield from ((".func", part.func), (".args", part.args), (".keywords", part.keywords))
    elif isinstance(part, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in part.items())
    elif isinstance(part, list | tuple | set | frozenset):
        yield from ((f"[{i}]", value) for i, value in enumerate(part))
    elif isinstance(part, type):
        yield from ((f".{name}", value) for name, value in vars(part).items())
    else:
        yield from ((f".{name}", value) for name, value in getattr(part, "__dict__", {}).items())
        yield f" ({type(part).__name__})", type(part)


def _kind(part: object) -> str:
    if isinstance(part, types.ModuleType):
        return f"the module {part.__name__}"
    word = type(part).__name__
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
