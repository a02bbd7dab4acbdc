"""What used to be measured wrongly without a word: now it is right, or is told."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from upright import Space, ensemble, evaluate, warp
from upright.checks import SuspiciousInput
from upright.cli import main
from upright.data.raw import RawSplit, content_digest, split_digests
from upright.families import Axis, Chain, Family, OfPixels, Spatial, matrix_of
from upright.record_files import read

IMAGES = torch.rand(24, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def network(*first: nn.Module, side: int = 12) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(*first, nn.Flatten(), nn.Linear(3 * side**2, 4)).eval()


def labels_of(model: nn.Module, images: Tensor = IMAGES) -> Tensor:
    with torch.no_grad():
        return model(images).argmax(1)


@pytest.mark.parametrize("view", [None, 10])
def test_an_evaluation_moves_images_on_a_canvas_as_warp_does(view: int | None) -> None:
    model, space = network(side=view or 18), Space.of("perspective(0.05)")
    poses, way = space.grid((3, 3)), {"canvas": 3, "view": view}
    labels = labels_of(model, warp(IMAGES, poses.like(torch.zeros(1, 2)), **way))
    with torch.no_grad():
        answers = torch.stack([model(warp(IMAGES, pose, **way)) for pose in poses.split(1)])
    losses = torch.stack(
        [nn.functional.cross_entropy(logits, labels, reduction="none") for logits in answers]
    )
    right = (answers.argmax(-1) == labels).all(0)
    found = evaluate(model, (IMAGES, labels), space=space, attacks=["grid-3x3"], **way)
    worst = found.attacks["grid-3x3"]
    assert right.any()
    assert worst.correct.equal(right)
    assert worst.worst_loss is not None
    torch.testing.assert_close(worst.worst_loss[right].float(), losses.amax(0)[right])


# --- models -----------------------------------------------------------------------------------


def warned_of(model: Any, images: Tensor = IMAGES, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspiciousInput)
        evaluate(model, (images, labels_of(network(), images)), attacks=["wo-1"], **options)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("batch_size", [None, 2, 3, 5, 8, 16, 24])
@pytest.mark.parametrize("count", [2, 3, 24])
def test_a_model_whose_answers_depend_on_the_batch_is_told_whatever_its_size(
    batch_size: int | None, count: int
) -> None:
    model = network(nn.BatchNorm2d(3, track_running_stats=False))
    (said,) = warned_of(model, IMAGES[:count], batch_size=batch_size)
    assert "depends on the others of its batch" in said


def test_a_model_that_answers_by_chance_is_told_so() -> None:
    (said,) = warned_of(lambda images: network()(nn.functional.dropout(images, 0.5)))
    assert "depends on chance; switch off dropout" in said


def test_a_function_that_detaches_images_gives_a_climb_no_gradient() -> None:
    model = network()
    with pytest.raises(ValueError, match="this model gives none; use an attack that needs none"):
        evaluate(
            lambda images: model(images.detach()), (IMAGES, labels_of(model)), attacks=["s-pgd"]
        )


class InPlace(nn.Module):
    """Normalises the images that it is given where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images.sub_(0.5).div_(0.25))
        return logits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_that_refuses_a_dtype_after_it_has_written_is_asked_about_the_image_itself(
    dtype: torch.dtype,
) -> None:
    model = InPlace().to(dtype).eval()
    assert warned_of(model) == []
    both = ensemble(model)
    assert both(IMAGES).equal(both(IMAGES))


def test_an_ensemble_takes_no_bytes_as_the_network_takes_none() -> None:
    with pytest.raises(ValueError, match="images must be float"):
        ensemble(network())((255 * IMAGES).byte())


def test_members_of_an_ensemble_may_answer_in_the_same_place() -> None:
    room = torch.empty(len(IMAGES), 4)

    def member(scale: float) -> Callable[[Tensor], Tensor]:
        return lambda images: room.copy_(network()(images) * scale)

    with torch.no_grad():
        expected = network()(IMAGES) * 2
        torch.testing.assert_close(ensemble(member(1), member(3))(IMAGES), expected)


def test_a_grid_over_more_than_a_whole_turn_is_told() -> None:
    model = network()
    data = (IMAGES, labels_of(model))
    with pytest.warns(SuspiciousInput, match="angle goes over more than a whole turn"):
        evaluate(model, data, space="rotate(270)", attacks=["grid-5"])
    for space in ("rotate(180)", "rotate(0..360)"):
        assert evaluate(model, data, space=space, attacks=["grid-5"]).natural_accuracy == 1


# --- families of a user's own -----------------------------------------------------------------


class Fade(OfPixels):
    """Gives the images themselves where there is nothing to do."""

    name: ClassVar[str] = "fade"
    axes = (Axis("fade", "", 0.0, 0.5),)

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        return images * (1 - values[..., 0]) if values.any() else images


def test_a_family_may_give_images_back_to_a_model_that_writes_into_them() -> None:
    model, images = InPlace().eval(), IMAGES.clone()
    labels = labels_of(network(), (IMAGES - 0.5) / 0.25)
    found = evaluate(model, (images, labels), space=Space(Chain((Fade(),))), attacks=["grid-3"])
    assert images.equal(IMAGES)
    assert found.natural_accuracy == 1


class Squash(Spatial):
    """Has no matrix far from zero."""

    name: ClassVar[str] = "squash"
    axes = (Axis("squash", "", -1.0, 1.0),)

    def matrix(self, values: Tensor, size: tuple[int, int]) -> Tensor:
        del size
        factor = (1 - 1.2 * values[..., 0] ** 2).sqrt()
        return matrix_of((factor, 0, 0), (0, factor, 0))


class Root(OfPixels):
    """Has no pixels on one side of zero."""

    name: ClassVar[str] = "root"
    axes = (Axis("root", "", -1.0, 1.0),)

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        return images * (1 + values[..., 0]).sqrt() + 0 * (values[..., 0] + 0.001).sqrt()


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Squash(), r"squash at squash -?\d.* has a matrix that is not finite"),
        (Root(), "root gives pixels that are not finite"),
    ],
)
def test_a_family_of_no_numbers_is_named(interpolation: str, family: Family, message: str) -> None:
    model, space = network(), Space(Chain((family,)))
    with pytest.raises(ValueError, match=message):
        evaluate(model, (IMAGES, labels_of(model)), space=space, interpolation=interpolation)


# --- data -------------------------------------------------------------------------------------


def test_masks_of_whole_numbers_are_told() -> None:
    masks = (IMAGES > 0.5).byte()
    with pytest.warns(SuspiciousInput, match="give masks of 0 and 1 as float"):
        evaluate(network(), (masks, torch.zeros(24).long()), attacks=[])


def test_batches_in_bytes_and_in_float_are_images_alike() -> None:
    in_bytes, model = (255 * IMAGES).byte(), network()
    labels = labels_of(model, in_bytes / 255)
    batches = [(in_bytes[:5], labels[:5]), (in_bytes[5:] / 255, labels[5:])]
    found = evaluate(model, iter(batches), attacks=["wo-2"])
    assert found.natural_accuracy == 1


def test_labels_may_be_an_array_that_runs_backwards() -> None:
    model = network()
    labels = labels_of(model).numpy()[::-1]
    assert evaluate(model, (IMAGES.flip(0), labels), attacks=[]).natural_accuracy == 1


def test_draws_are_the_same_by_another_default_dtype() -> None:
    model = network()
    data = (IMAGES, labels_of(model))
    usual = evaluate(model, data, attacks=["wo-3"]).attacks["wo-3"]
    torch.set_default_dtype(torch.float64)
    try:
        other = evaluate(model, data, attacks=["wo-3"]).attacks["wo-3"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert usual.worst_pose is not None
    assert other.worst_pose is not None
    assert usual.worst_pose.values.equal(other.worst_pose.values.float())


def test_a_state_is_no_folder(tmp_path: Path) -> None:
    model = network()
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        evaluate(model, (IMAGES, labels_of(model)), attacks=["wo-1"], state=tmp_path)


# --- the command line -------------------------------------------------------------------------


def test_labels_beyond_a_byte_have_digests_of_their_own() -> None:
    images = np.zeros((2, 3, 4, 4), np.uint8)
    one, other = (RawSplit(images, np.array([1, last])) for last in (300, 300 - 256))
    assert split_digests("test", one)["test_images"] == split_digests("test", other)["test_images"]
    assert split_digests("test", one)["test_labels"] != split_digests("test", other)["test_labels"]
    assert content_digest(one) != content_digest(other)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("some.npz", test_images=(255 * IMAGES).byte().numpy(), test_labels=np.zeros(24, int))
    return tmp_path


_MODEL = """
import torch
def make():
    torch.manual_seed(0)
    linear = torch.nn.Linear(432, 3)
    return lambda images: linear(images.flatten(1)) {more}
"""


def evaluated(*options: str) -> None:
    command = ["evaluate", "scaled.py:make", "--data", "npz:some.npz", "--attack", "wo-2"]
    assert main([*command, *options]) == 0


def test_code_that_changed_has_a_record_of_its_own(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is that of a module, and not of the file that is named."""
    monkeypatch.syspath_prepend(at)
    (at / "scaled.py").write_text(
        _MODEL.format(more="* scale.by()").replace("import", "import scale,")
    )
    for state, by in (("a", "1"), ("a", "1"), ("b", "torch.tensor([1, -9, 1])")):
        (at / "scale.py").write_text(f"import torch\ndef by(): return {by}")
        monkeypatch.delitem(sys.modules, "scale", raising=False)
        importlib.invalidate_caches()
        evaluated("--state", state, "--record", "r.jsonl")
    first, second = read(at / "r.jsonl").records
    assert first.key == second.key
    assert first.measured != second.measured


def test_a_loss_without_bound_is_null_in_json(at: Path) -> None:
    more = "+ torch.tensor([-torch.inf, 0, 0])"
    (at / "scaled.py").write_text(_MODEL.format(more=more))
    evaluated("--details", "--json", "found.json")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads((at / "found.json").read_text(), parse_constant=refuse)
    assert found["details"]["natural_loss"] == [None] * 24
