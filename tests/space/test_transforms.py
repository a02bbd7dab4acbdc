"""A space as a transform: a pose for each image, in a composition, in workers and in bytes."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from upright import PAPER, Space, SuspiciousInput, warp
from upright.transforms import Random
from upright.warp import Resampling

LARGER = "shift(10%) rotate(20) zoom(0.9..1.1) brightness(0.2)"


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Any:
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize(
    ("space", "way"),
    [(PAPER, {}), (LARGER, {"fill": "border"}), (LARGER, {"view": 16, "interpolation": "bicubic"})],
)
def test_it_is_the_warp_of_draws_from_the_space(space: str | Space, way: dict[str, Any]) -> None:
    images = noise(5, 3, 20, 30)
    seen = (way["view"],) * 2 if "view" in way else (20, 30)
    poses = Space.of(space).in_pixels(*seen).sample(5, generator=generator())
    moved = Random(space, generator=generator(), **way)(images)
    assert moved.equal(warp(images, poses, **way))
    assert moved.shape[-2:] == seen


def test_every_image_and_every_call_has_a_pose_of_its_own() -> None:
    images = noise(1, 3, 8, 8).expand(10, 3, 8, 8)
    transform = Random()
    moved = torch.cat((transform(images), transform(images)))
    assert len(moved.flatten(1).unique(dim=0)) == 20


def test_without_a_generator_torch_s_own_draws() -> None:
    images, found = noise(4, 3, 8, 8), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(Random()(images))
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])


def test_a_generator_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    Random(generator=generator())(noise(4, 3, 8, 8))
    assert torch.get_rng_state().equal(before)


def test_a_single_image_is_moved_as_a_batch_of_one() -> None:
    image = noise(3, 9, 8)
    alone, batch = (Random(LARGER, generator=generator()) for _ in range(2))
    assert alone(image).equal(batch(image[None])[0])


@pytest.mark.parametrize("shape", [(4, 3, 9, 8), (1, 9, 8)])
def test_bytes_come_back_as_the_nearest_bytes(shape: tuple[int, ...]) -> None:
    pixels = (256 * noise(*shape)).byte()
    in_bytes, in_floats = (Random(LARGER, generator=generator()) for _ in range(2))
    found, exact = in_bytes(pixels), 255 * in_floats(pixels.float() / 255)
    assert found.dtype == torch.uint8
    assert (found - exact).abs().max() <= 0.5 + 1e-4


def test_bytes_that_are_not_moved_stay_as_they_are() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert Random("shift(0px) rotate(0) gamma(1) blur(0)")(pixels).equal(pixels)


def test_bytes_do_not_overflow_where_bicubic_interpolation_overshoots() -> None:
    pixels = torch.zeros(8, 1, 16, 16, dtype=torch.uint8)
    pixels[..., 8:] = 255
    moved = Random("shift(1px)", interpolation="bicubic", fill="border")(pixels)
    # Of an edge between black and white, every row goes from dark to light; a byte that had gone
    # round would be light on the dark side.
    assert moved[..., :5].max() < 64
    assert moved[..., 11:].min() > 192


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_of_floats_stays(dtype: torch.dtype) -> None:
    assert Random(LARGER)(noise(2, 3, 8, 8).to(dtype)).dtype == dtype


def test_labels_are_passed_on() -> None:
    labels = torch.tensor([1, 2])
    moved, same, extra = Random()(noise(2, 3, 8, 8), labels, "extra")
    assert moved.shape == (2, 3, 8, 8)
    assert same is labels
    assert extra == "extra"


class Photograph(Tensor):
    """As torchvision's ``tv_tensors.Image``: a tensor of a kind of its own."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What is made of one is a plain tensor, as with torchvision's."""
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs or {})


@pytest.mark.parametrize("in_bytes", [False, True])
def test_images_of_another_kind_of_tensor_come_back_as_such(in_bytes: bool) -> None:
    plain = (255 * noise(3, 8, 8)).byte() if in_bytes else noise(3, 8, 8)
    moved = Random(generator=generator())(plain.as_subclass(Photograph))
    assert type(moved) is Photograph
    assert moved.as_subclass(Tensor).equal(Random(generator=generator())(plain))


def test_it_composes_with_other_modules_and_has_no_weights() -> None:
    transform = Random(LARGER)
    model = nn.Sequential(transform, nn.Flatten(), nn.Linear(3 * 64, 2))
    assert model(noise(2, 3, 8, 8)).shape == (2, 2)
    assert not list(transform.parameters())
    assert not transform.state_dict()


def test_gradients_flow_through_it() -> None:
    images = noise(2, 3, 8, 8).requires_grad_()
    Random(LARGER)(images).sum().backward()
    assert images.grad is not None
    assert images.grad.any()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_and_pickles_draw_what_it_draws(again: Any) -> None:
    transform = Random(LARGER, view=6, fill="#7f7f7f", interpolation="nearest")
    copied = again(transform)
    assert repr(copied) == repr(transform)
    images, found = noise(4, 3, 8, 8), []
    for each in (transform, copied):
        torch.manual_seed(0)
        found.append(each(images))
    assert found[0].equal(found[1])


def test_its_repr_makes_it_again() -> None:
    plain, other = Random(), Random(LARGER, view=8, fill="border", interpolation="nearest")
    assert repr(plain) == "Random('shift(3px) rotate(30)')"
    made = eval(repr(other))
    assert (made.space, made.resampling) == (other.space, Resampling("border", "nearest", 8))


class OneImage(Dataset[Tensor]):
    """The same image again and again, each time transformed."""

    def __init__(self) -> None:
        self.transform = Random()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, _: int) -> Tensor:
        moved: Tensor = self.transform(noise(3, 8, 8))
        return moved


def test_workers_draw_differently() -> None:
    torch.manual_seed(0)
    loader = DataLoader(OneImage(), batch_size=2, num_workers=2)
    moved = torch.cat(list(loader))
    assert len(moved.flatten(1).unique(dim=0)) == 8


def test_after_torchvision_s_transforms() -> None:
    try:
        v2 = importlib.import_module("torchvision.transforms.v2")
        tv_tensors = importlib.import_module("torchvision.tv_tensors")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs torchvision: {error}")
    steps = [v2.RandomHorizontalFlip(), Random(LARGER), v2.ToDtype(torch.float32, scale=True)]
    image = tv_tensors.Image((255 * noise(3, 16, 16)).byte())
    moved, label = v2.Compose(steps)(image, 7)
    assert isinstance(moved, tv_tensors.Image)
    assert (moved.dtype, moved.shape, label) == (torch.float32, (3, 16, 16), 7)
    assert v2.Compose(steps)(image).shape == (3, 16, 16)


@pytest.mark.parametrize("images", [torch.zeros(2, 8, 8, dtype=torch.int64), torch.zeros(8, 8)])
def test_other_tensors_are_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="images must be float or uint8, N x C x H x W or C x H x"):
        Random()(images)


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a tensor, but are of type list; of a picture"):
        Random()([[0.0]])


def test_wrong_settings_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no family is called 'rotat'"):
        Random("rotat(30)")
    with pytest.raises(ValueError, match="fill 'white' is not one of"):
        Random(fill="white")
    with pytest.raises(ValueError, match="interpolation 'area' is not one of"):
        Random(interpolation="area")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["brightness(0.01)", "rotate(5) contrast(1.1)"])
def test_normalised_images_are_doubted_once_where_pixels_are_clamped(text: str) -> None:
    transform, images = Random(text), 4 * noise(2, 3, 8, 8) - 2
    with pytest.warns(SuspiciousInput, match="outside \\[0, 1\\]"):
        transform(images)
    transform(images)
    Random("rotate(5)")(images)
