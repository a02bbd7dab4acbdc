"""Readers of models in files: ONNX and torch.export."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import torch
from guard import Target
from torch import nn

from upright.sources import load_model

__all__ = ["TARGETS"]


def _onnx(data: bytes, folder: Path) -> None:
    (folder / "x.onnx").write_bytes(data)
    load_model(str(folder / "x.onnx"))


def _exported(data: bytes, folder: Path) -> None:
    (folder / "x.pt2").write_bytes(data)
    load_model(str(folder / "x.pt2"))


def _onnx_seeds() -> list[bytes]:
    from onnx import TensorProto, helper

    def model(shape: list[str | int | None], kind: int = TensorProto.FLOAT) -> bytes:
        images = helper.make_tensor_value_info("images", kind, shape)
        logits = helper.make_tensor_value_info("logits", kind, None)
        node = helper.make_node("Flatten", ["images"], ["logits"])
        graph = helper.make_graph([node], "g", [images], [logits])
        version = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=version, ir_version=8)
        return bytes(made.SerializeToString())

    whole = model([1, 3, 4, 4])
    return [whole, model(["n", 3, 4, 4]), model([3]), model([1, 3], TensorProto.INT64), whole[:-5]]


def _exported_seeds() -> list[bytes]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    stream = io.BytesIO()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 2, 2),)), stream)
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as file:
        file.writestr("version", "1")
    return [stream.getvalue(), stream.getvalue()[:-99], empty.getvalue(), b""]


TARGETS = (
    Target("onnx", _onnx, _onnx_seeds),
    Target("exported", _exported, _exported_seeds),
)
