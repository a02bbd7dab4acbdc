"""CUDA C++ compiled at run time by NVRTC, which PyTorch's CUDA builds bring along."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

__all__ = ["CudaKernel", "compile_kernel"]

_MOST_SHARED_BYTES = 8
"""The driver's number for a function's largest dynamic shared memory."""


@dataclass(frozen=True)
class CudaKernel:
    """A kernel on one device."""

    function: ctypes.c_void_p
    threads: int
    """Of a group."""
    shared_bytes: int
    """Of a group."""

    def launch(self, groups: int, *arguments: Tensor | int) -> None:
        """Queue a launch on the current stream; tensors are passed as pointers, and not checked."""
        values = [
            ctypes.c_void_p(value.data_ptr()) if isinstance(value, Tensor) else ctypes.c_int(value)
            for value in arguments
        ]
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check_driver(
            _driver().cuLaunchKernel(
                self.function,
                *(groups, 1, 1),
                *(self.threads, 1, 1),
                self.shared_bytes,
                stream,
                (ctypes.c_void_p * len(pointers))(*pointers),
                None,
            )
        )


def compile_kernel(
    source: str, name: str, options: Sequence[str], *, threads: int, shared_bytes: int
) -> CudaKernel:
    """Compile a kernel for the current device.

    Args:
        source: CUDA C++ that needs no header.
        name: of an ``extern "C"`` function in it.
        options: for the compiler, such as ``-DWIDTH=32``.
        threads: of a group.
        shared_bytes: of a group.
    """
    major, minor = torch.cuda.get_device_capability()
    content = _compile(source, [f"--gpu-architecture=sm_{major}{minor}", *options])
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver = _driver()
    _check_driver(driver.cuModuleLoadData(ctypes.byref(module), content))
    _check_driver(driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
    _check_driver(driver.cuFuncSetAttribute(function, _MOST_SHARED_BYTES, shared_bytes))
    return CudaKernel(function, threads, shared_bytes)


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
    return ctypes.CDLL(f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}")


@cache
def _driver() -> ctypes.CDLL:
    torch.cuda.current_stream()  # its context is the one in which all of this lives
    return ctypes.CDLL("libcuda.so.1")


def _check_compiler(result: int) -> None:
    if result:
        raise RuntimeError(f"NVRTC failed with error {result}")


def _check_driver(result: int) -> None:
    if result:
        raise RuntimeError(f"the CUDA driver failed with error {result}")
