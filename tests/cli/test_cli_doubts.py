"""What ``upright`` says of data and options that probably were not meant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rigid_spaces import rigid
from tiny_runs import Call, colours
from upright import SuspiciousInput
from upright.cli.options import parse_space

SEEN = "run was trained on these very images, so this is no test; give images that it has not seen"
RUN = ("train", "std", "--model", "tiny", "--steps", 2, "--batch", 6, "--out", "run", "--data")
ASK = ("evaluate", "run", "--attack", "grid-2x2x2", "--data")


pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known


@pytest.fixture
def upright(upright: Call, tmp_path: Path) -> Call:
    data = colours(count=12)
    arrays = {"images": data.images.numpy(), "labels": data.labels.numpy()}
    np.savez(tmp_path / "plain.npz", **arrays)
    in_parts = {f"train_{name}": array[:6] for name, array in arrays.items()}
    in_parts |= {f"test_{name}": array[6:] for name, array in arrays.items()}
    np.savez(tmp_path / "parts.npz", **in_parts)
    for number, (image, label) in enumerate(zip(arrays["images"], data.labels, strict=True)):
        for place in ("photos", f"in-parts/{'train' if number < 6 else 'test'}"):
            folder = tmp_path / place / data.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"{number:02}.png")
    return upright


def test_a_run_inside_of_another_name_is_known_too(upright: Call) -> None:
    """Averaged, it takes over the sizes of the run, and its training images are told."""
    assert upright(*RUN, "folder:photos", "--center-crop", 6)[0] == 0
    asked = ("--data", "folder:photos", "--attack", "rnd", "--json", "-")
    code, out, err = upright("evaluate", "tta-2:run", *asked)
    assert code == 0
    assert json.loads(out)["options"]["center_crop"] == 6
    assert f"warning: tta-2:{SEEN}" in err


@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("npz:plain.npz", ["npz:plain.npz"]),
        ("npz:plain.npz", ["npz:plain.npz", "--limit", "4"]),
        ("folder:photos", ["folder:photos"]),
        ("folder:photos", ["folder:photos", "--limit", "4"]),
        ("folder:photos", ["folder:./photos/"]),
        ("folder:in-parts", ["folder:in-parts/train"]),
    ],
)
def test_evaluating_the_images_that_were_trained_on_is_told(
    upright: Call, trained: str, asked: list[str]
) -> None:
    assert upright(*RUN, trained)[0] == 0
    code, _, err = upright(*ASK, *asked)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith(f"upright: warning: {SEEN}")


@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("npz:parts.npz", ["npz:parts.npz"]),
        ("npz:parts.npz", ["npz:parts.npz", "--split", "train"]),
        ("folder:in-parts", ["folder:in-parts"]),
        ("folder:in-parts/train", ["folder:in-parts/test"]),
    ],
)
def test_other_images_or_those_that_were_asked_for_are_not(
    upright: Call, trained: str, asked: list[str]
) -> None:
    assert upright(*RUN, trained)[0] == 0
    code, _, err = upright(*ASK, *asked)
    assert (code, err) == (0, "")


def test_labels_that_count_from_1_are_told(upright: Call) -> None:
    assert upright(*RUN, "npz:parts.npz")[0] == 0
    data = colours(count=12)
    np.savez("from-1.npz", images=data.images.numpy(), labels=data.labels.numpy() + 1)
    code, _, err = upright(*ASK, "npz:from-1.npz")
    assert code == 2
    assert "outputs, and no label is 0: labels probably count from 1, but must from 0" in err
    assert "but the data have" not in err


@pytest.mark.parametrize("data", ["npz:plain.npz", "folder:photos"])
def test_a_part_of_data_without_parts_is_told(upright: Call, data: str) -> None:
    assert upright(*RUN, "folder:in-parts")[0] == 0
    code, _, err = upright(*ASK, data, "--split", "train")
    assert code == 0
    assert f"warning: {data} has no parts: --split train reads the same images as test" in err


@pytest.mark.parametrize(("text", "percent"), [("0.1", "10%"), ("0.025", "2.5%")])
def test_a_translation_below_a_pixel_is_told_from_a_part_of_the_size(
    text: str, percent: str
) -> None:
    with pytest.warns(SuspiciousInput, match=f"{text} is {text} px, .* is meant, write {percent}"):
        space = parse_space(None, text, 30)
    assert space == rigid(float(text), 30)


@pytest.mark.parametrize("text", ["0", "1", "3", "1.5", "0.1%", "10%"])
def test_other_translations_are_taken_at_their_word(text: str) -> None:
    parse_space(None, text, 30)
