"""What people bring to ``evaluate``: understood, or refused in a line that says what to do."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from upright import Evaluation, Pose, evaluate
from upright.data import load_data
from upright.evaluation.answers import answers
from upright.evaluation.batches import batches

BYTES = torch.randint(256, (12, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
LABELS = torch.arange(12) % 3
ATTACKS = ["grid-1x3x3", "wo-2", "s-pgd"]


def network(channels: int = 3) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    layers = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3))
    for weight in layers.parameters():
        weight.data = torch.randn(weight.shape, generator=generator) / 4
    return layers.eval()


def measure(model: Any = None, data: Any = (BYTES, LABELS), **options: Any) -> Evaluation:
    return evaluate(model or network(), data, **{"attacks": ATTACKS} | options)


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert torch.equal(one.natural_loss, other.natural_loss)
    for name, result in one.attacks.items():
        assert torch.equal(result.correct, other.attacks[name].correct)
        assert result.worst_loss is not None
        torch.testing.assert_close(result.worst_loss, other.attacks[name].worst_loss)


class Pictures(Dataset[tuple[Any, int]]):
    """Images as PIL has them."""

    def __init__(self, mode: str = "RGB", *, ragged: bool = False) -> None:
        self.mode, self.ragged = mode, ragged

    def __len__(self) -> int:
        return len(BYTES)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = Image.fromarray(BYTES[index].permute(1, 2, 0).numpy()).convert(self.mode)
        size = (8, 7 + index % 2) if self.ragged else (8, 8)
        return picture.crop((0, 0, *size)), int(LABELS[index])


class Tensors(Pictures):
    """The same after a transform to tensors in [0, 1]."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture, label = super().__getitem__(index)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255, label


class TestPictures:
    def test_pictures_are_the_images_they_show(self) -> None:
        assert_same(measure(data=Pictures()), measure())
        assert_same(measure(data=Tensors()), measure())

    def test_pictures_of_other_modes_become_red_green_and_blue(self) -> None:
        assert_same(measure(data=Pictures("RGBA")), measure())

    def test_grey_pictures_have_one_channel(self) -> None:
        grey = np.stack([np.array(Pictures("L")[index][0]) for index in range(12)])
        expected = measure(network(1), (grey[:, None], LABELS))
        assert_same(measure(network(1), Pictures("L")), expected)

    def test_a_list_of_pictures_and_their_labels_are_all_at_once(self) -> None:
        pictures = [Pictures()[index][0] for index in range(len(BYTES))]
        for labels in (LABELS, LABELS.tolist(), LABELS.numpy()):
            assert_same(measure(data=(pictures, labels)), measure())
        with pytest.raises(ValueError, match="a batch has 12 images, but 11 labels"):
            measure(data=(pictures, LABELS[1:]))

    def test_two_of_anything_are_still_told_apart(self) -> None:
        """A list of two samples or batches is no pair of images and labels, nor the other way."""
        expected = measure(data=(BYTES[:2], LABELS[:2]))
        pictures, labels = zip(*(Pictures()[index] for index in range(2)), strict=True)
        alike: list[Any] = [
            [(image, label) for image, label in zip(pictures, labels, strict=True)],
            [(BYTES[index], LABELS[index]) for index in range(2)],
            ((BYTES[0].numpy(), LABELS[0].numpy()), (BYTES[1].numpy(), LABELS[1].numpy())),
            [(BYTES[:1], LABELS[:1]), (BYTES[1:2], LABELS[1:2])],
            [([pictures[0]], [labels[0]]), ([pictures[1]], [labels[1]])],
            [{"image": image, "label": n} for image, n in zip(pictures, labels, strict=True)],
            (pictures, labels),
            [[*pictures], [*labels]],
        ]
        for data in alike:
            assert_same(measure(data=data), expected)

    def test_more_than_8_bits_are_refused(self) -> None:
        with pytest.raises(ValueError, match="mode I, more than 8 bits a channel; save it with 8"):
            measure(data=Pictures("I"))

    def test_a_loader_that_cannot_put_pictures_together_is_explained(self) -> None:
        with pytest.raises(ValueError, match="give evaluate the Dataset itself, or let a tran"):
            measure(data=DataLoader(Pictures(), 4))


class TestSizes:
    @pytest.mark.parametrize("data", [Pictures(ragged=True), Tensors(ragged=True)])
    def test_several_sizes_in_a_dataset(self, data: Pictures) -> None:
        with pytest.raises(ValueError, match=r"\(3, 7, 8\) and \(3, 8, 8\) .* to one size"):
            measure(data=data)

    def test_several_sizes_in_a_loader(self) -> None:
        with pytest.raises(ValueError, match="several sizes in one data set: resize or crop"):
            measure(data=DataLoader(Tensors(ragged=True), 4))

    def test_other_errors_of_a_loader_are_passed_on(self) -> None:
        class Broken(Pictures):
            def __getitem__(self, index: int) -> tuple[Tensor, int]:
                raise RuntimeError("no disk")

        with pytest.raises(RuntimeError, match="no disk"):
            measure(data=DataLoader(Broken(), 4))

    def test_channels_last(self) -> None:
        for data in ((BYTES.permute(0, 2, 3, 1), LABELS), [(BYTES[0].permute(1, 2, 0), 0)]):
            with pytest.raises(ValueError, match=r"look like N x H x W x C, .*permute\(0, 3, 1, 2"):
                measure(data=data)

    @pytest.mark.parametrize(
        ("takes", "data", "message"),
        [
            (1, BYTES, r"takes images of 1 channel, but these have 3; .*mean\(1, keepdim=True\)"),
            (3, BYTES[:, :1], r"of 3 channels, but these have 1; .*images\.expand\(-1, 3, -1, -1"),
            (3, torch.cat((BYTES, BYTES[:, :1]), 1), r"these have 4; .*images\[:, :3\]"),
            (5, BYTES, "takes images of 5 channels, but these have 3; give such data"),
        ],
    )
    def test_another_number_of_channels(self, takes: int, data: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            measure(network(takes), (data, LABELS))

    def test_channels_that_a_model_makes_itself_are_its_own_affair(self) -> None:
        broken = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(4, 2, 1)).eval()
        with pytest.raises(RuntimeError, match="to have 4 channels, but got 2"):
            measure(broken)


class TestNames:
    @pytest.mark.parametrize("images", ["pixel_values", "image", "img", "images"])
    @pytest.mark.parametrize("labels", ["labels", "label", "target", "targets"])
    def test_the_usual_names_are_understood(self, images: str, labels: str) -> None:
        batch = {"id": 3, images: BYTES, labels: LABELS}
        assert len(measure(data=[batch, batch], attacks=[])) == 24

    def test_what_a_model_is_given_goes_before_what_it_was_made_from(self) -> None:
        batch = {"image": BYTES.flip(0), "pixel_values": BYTES, "labels": LABELS}
        assert_same(measure(data=[batch]), measure())

    def test_other_names_are_listed(self) -> None:
        with pytest.raises(ValueError, match=r"has x, y, but none of pixel_values, .*rename"):
            measure(data=[{"x": BYTES, "y": LABELS}])
        with pytest.raises(ValueError, match=r"has image, y, but none of labels, label"):
            measure(data=[{"image": BYTES, "y": LABELS}])

    @pytest.mark.parametrize("labels", [["cat"] * 12, [None] * 12, np.array(["cat"] * 12)])
    def test_labels_that_are_no_numbers(self, labels: Any) -> None:
        with pytest.raises(ValueError, match=r"class numbers \(int64\), but some are .*; number"):
            measure(data=(BYTES, labels))

    def test_images_that_are_no_numbers(self) -> None:
        with pytest.raises(ValueError, match=r"pictures of PIL, but some are 'a\.png'; convert"):
            measure(data=[("a.png", 0), ("b.png", 1)])


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
    def test_a_model_gets_images_in_the_dtype_of_its_weights(self, dtype: torch.dtype) -> None:
        model = network().to(dtype)
        assert_same(measure(model), measure(lambda images: model(images.to(dtype))))

    def test_the_explorer_asks_such_models_too(self) -> None:
        model = copy.deepcopy(network()).bfloat16()
        images = BYTES.float() / 255
        found = answers(model, images, LABELS, Pose.zeros(1))
        assert torch.equal(found.predicted[:, 0], model(images.bfloat16()).argmax(1))

    def test_a_model_that_takes_images_as_they_are_gets_them_so(self) -> None:
        seen = set()

        class Careful(nn.Module):
            """Normalises in full precision, and computes in half."""

            def __init__(self) -> None:
                super().__init__()
                self.network = network().half()

            def forward(self, images: Tensor) -> Tensor:
                seen.add(images.dtype)
                return self.network(((images - 0.5) / 0.25).half())

        measure(Careful().eval())
        assert seen == {torch.float32}


class TestInferenceMode:
    def test_s_pgd_climbs_under_it(self) -> None:
        model = network()
        with torch.inference_mode():
            under = measure(model)
            own = measure(model, (BYTES.float() / 255, LABELS.clone()))
            assert torch.is_inference_mode_enabled()
        assert_same(under, measure())
        assert_same(own, measure())

    def test_a_model_that_was_made_under_it_gives_no_gradients(self) -> None:
        with torch.inference_mode():
            model = network()
        assert_same(measure(model, attacks=["wo-2"]), measure(attacks=["wo-2"]))
        with pytest.raises(ValueError, match=r"s-pgd needs the gradient .*make it outside of that"):
            measure(model)


def test_a_picture_is_seen_alike_in_a_folder_and_in_a_data_set(tmp_path: Path) -> None:
    """Turned as the camera says: the same pixels, whichever way they come."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for number, label in enumerate(("a", "b")):
        (tmp_path / label).mkdir()
        picture = Image.fromarray(BYTES[number].permute(1, 2, 0).numpy())
        picture.save(tmp_path / label / "1.png", exif=exif)
    pictures = [Image.open(tmp_path / label / "1.png") for label in ("a", "b")]
    folder = load_data(f"folder:{tmp_path}")
    (batch,) = batches((pictures, [0, 1]))
    assert torch.equal(batch.images, folder.images)
