"""This folder's CUDA C++, compiled at run time by NVRTC, which comes with PyTorch for CUDA."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from upright.callers import warn_caller

__all__ = ["CudaKernel", "KernelShape", "as_argument", "kernels_for", "source_of"]

_MOST_SHARED_BYTES, _PART_SHARED = 8, 9
"""The driver's numbers for a function's largest dynamic shared memory, and for the part of L1
that it prefers to be shared memory, in percent."""


@dataclass(frozen=True)
class CudaKernel:
    """A kernel on one device."""

    function: ctypes.c_void_p
    context: ctypes.c_void_p
    threads: int
    """Threads of a thread block."""
    shared_bytes: int
    """Dynamic shared memory of a thread block."""

    def launch(self, grid: int, *arguments: Tensor | int | None) -> None:
        """Queue a launch of ``grid`` thread blocks on the current stream.

        Tensors are passed as pointers, and not checked; None is a null pointer.
        """
        current = ctypes.c_void_p()
        _check_driver(_driver().cuCtxGetCurrent(ctypes.byref(current)))
        if not current.value:  # a thread of autograd that has not called CUDA yet
            _check_driver(_driver().cuCtxSetCurrent(self.context))
        values = [as_argument(value) for value in arguments]
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check_driver(
            _driver().cuLaunchKernel(
                self.function,
                *(grid, 1, 1),
                *(self.threads, 1, 1),
                self.shared_bytes,
                stream,
                (ctypes.c_void_p * len(pointers))(*pointers),
                None,
            )
        )


def as_argument(value: Tensor | int | None) -> ctypes.c_void_p | ctypes.c_int:
    """A value as a kernel takes it."""
    if isinstance(value, int):
        return ctypes.c_int(value)
    return ctypes.c_void_p(None if value is None else value.data_ptr())


class KernelShape(Protocol):
    """What kernels are compiled for, and how they cut the work."""

    @property
    def fits(self) -> bool:
        """Whether the kernels take it."""

    @property
    def options(self) -> list[str]:
        """For the compiler, such as ``-DWIDTH=32``."""

    @property
    def threads(self) -> int:
        """Threads of a thread block."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a thread block."""


def kernels_for(
    shape: KernelShape, device: torch.device, file: str, names: Sequence[str]
) -> list[CudaKernel] | None:
    """Compile kernels for a shape; None where it does not fit, or, with a warning, where that
    cannot be done.

    Args:
        shape: of what they take.
        device: of which there are none where this is not a GPU by NVIDIA from Ampere on.
        file: of this folder; ``convolve.cuh`` comes before it.
        names: of ``extern "C"`` functions in it.
    """
    if not shape.fits:
        return None
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        with torch.cuda.device(device):
            return _load(source_of(file), names, shape)
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        warn_caller(f"networks run layer by layer: {reason}", RuntimeWarning)
        return None


def source_of(file: str) -> str:
    """The text of a file of this folder, after what all of them share."""
    folder = files("upright.models.fused")

    def text(name: str) -> str:
        included = re.compile('^#include "(.+)"$', re.MULTILINE)
        return included.sub(lambda found: text(found[1]), folder.joinpath(name).read_text())

    return text("convolve.cuh") + text(file)


def _load(source: str, names: Sequence[str], shape: KernelShape) -> list[CudaKernel]:
    major, minor = torch.cuda.get_device_capability()
    content = _compile(source, [f"--gpu-architecture=sm_{major}{minor}", *shape.options])
    driver, module, found = _driver(), ctypes.c_void_p(), list[CudaKernel]()
    context = ctypes.c_void_p()
    _check_driver(driver.cuCtxGetCurrent(ctypes.byref(context)))
    _check_driver(driver.cuModuleLoadData(ctypes.byref(module), content))
    for name in names:
        function = ctypes.c_void_p()
        _check_driver(driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        _check_driver(driver.cuFuncSetAttribute(function, _MOST_SHARED_BYTES, shape.shared_bytes))
        if shape.shared_bytes > 48 * 1024:
            _check_driver(driver.cuFuncSetAttribute(function, _PART_SHARED, 100))
        found.append(CudaKernel(function, context, shape.threads, shape.shared_bytes))
    return found


def _compile(source: str, options: Sequence[str]) -> bytes:
    compiler, program = _compiler(), ctypes.c_void_p()
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    _check_compiler(
        compiler.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
    )
    try:
        if compiler.nvrtcCompileProgram(program, len(options), words):
            log = _read(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog, program)
            raise RuntimeError(f"a CUDA kernel does not compile: {log.decode(errors='replace')}")
        return _read(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN, program)
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _read(size: ctypes._NamedFuncPointer, get: ctypes._NamedFuncPointer, program: object) -> bytes:
    """What a program has of some kind, of which one function gives the size and one the bytes."""
    count = ctypes.c_size_t()
    _check_compiler(size(program, ctypes.byref(count)))
    content = ctypes.create_string_buffer(count.value)
    _check_compiler(get(program, content))
    return content.raw


@cache
def _compiler() -> ctypes.CDLL:
    """NVRTC: where the system's loader finds it, or in the packages that PyTorch installs."""
    name = f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}"
    try:
        return ctypes.CDLL(name)
    except OSError:
        places = (found for path in sys.path for found in Path(path).glob(f"nvidia/*/lib/{name}"))
        library = next(places, None)
        if library is None:
            raise
        for part in library.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))  # which it would look for in the system's places alone
        return ctypes.CDLL(str(library))


@cache
def _driver() -> ctypes.CDLL:
    torch.cuda.synchronize()  # makes the context in which all of this lives
    return ctypes.CDLL("libcuda.so.1")


def _check_compiler(result: int) -> None:
    if result:
        raise RuntimeError(f"NVRTC failed with error {result}")


def _check_driver(result: int) -> None:
    if result:
        raise RuntimeError(f"the CUDA driver failed with error {result}")
