"""MATLAB files: what scipy writes comes out again, and nothing but arrays of numbers does."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upright.data import mat
from upright.data.mat import read_mat

KINDS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    shape=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    packed=st.booleans(),
    name=st.from_regex(r"v[a-z0-9_]{0,20}", fullmatch=True),
)
def test_arrays_come_out_as_scipy_reads_them(tmp_path: Path, kind, shape, packed, name) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    content = {"text": "abc", name: array, "cells": {"a": [1]}, "last": np.arange(3)}
    scipy.io.savemat(tmp_path / "x.mat", content, do_compression=packed)
    expected, found = scipy.io.loadmat(tmp_path / "x.mat"), read_mat(tmp_path / "x.mat")
    assert found.keys() == {name, "last"}
    for key, each in found.items():
        assert each.dtype == expected[key].dtype
        np.testing.assert_array_equal(each, expected[key])


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_anywhere_is_refused_or_has_less(tmp_path: Path, packed: bool) -> None:
    scipy.io.savemat(
        tmp_path / "x.mat", {"X": np.arange(9), "y": np.arange(3)}, do_compression=packed
    )
    whole = (tmp_path / "x.mat").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "x.mat").write_bytes(whole[:length])
        try:
            found = read_mat(tmp_path / "x.mat")
        except (ValueError, zlib.error):
            continue
        assert found.keys() < {"X", "y"}


def test_what_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(mat, "_MOST_BYTES", 1000)
    scipy.io.savemat(tmp_path / "x.mat", {"X": np.zeros(10_000)}, do_compression=True)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        read_mat(tmp_path / "x.mat")


def test_a_shape_that_its_values_do_not_fill_is_refused(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"X": np.zeros((2, 3), np.uint8)})
    content = (tmp_path / "x.mat").read_bytes().replace(b"\2\0\0\0\3\0\0\0", b"\2\0\0\0\x7f\0\0\0")
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(ValueError, match=r"shape \[2, 127\] has 6 values"):
        read_mat(tmp_path / "x.mat")
