"""Data from files and folders, by name: what comes in comes out, and bad input is named."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from upright import SuspiciousInput
from upright.data import LabelledImages, data_names, data_set, has_parts, load_data
from upright.data.folder import read_folder
from upright.data.npz import read_npz
from upright.data.registry import DATA_SETS

Pixels = NDArray[np.uint8]


def noise(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save_image(path: Path, pixels: Pixels, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


# --- LabelledImages -------------------------------------------------------------------------------


@pytest.fixture
def four() -> LabelledImages:
    images = torch.from_numpy(noise(4, 3, 5, 6))
    return LabelledImages(images, torch.tensor([1, 0, 2, 1]), ("a", "b", "c"))


def test_an_item_is_a_float_image_between_0_and_1_and_its_label(four: LabelledImages) -> None:
    image, label = four[2]
    assert image.dtype == torch.float32
    assert torch.equal((image * 255).round().to(torch.uint8), four.images[2])
    assert label == 2


def test_as_float_stacks_the_items(four: LabelledImages) -> None:
    assert torch.equal(four.as_float(), torch.stack([four[index][0] for index in range(4)]))
    assert four.as_float().max() <= 1


def test_a_data_loader_takes_it_as_a_data_set(four: LabelledImages) -> None:
    assert isinstance(four, Dataset)
    batches = list(DataLoader(four, batch_size=3))
    assert torch.equal(torch.cat([images for images, _ in batches]), four.as_float())
    assert torch.equal(torch.cat([labels for _, labels in batches]), four.labels)


def test_head_keeps_the_first_and_all_classes(four: LabelledImages) -> None:
    assert torch.equal(four.head(2).images, four.images[:2])
    assert torch.equal(four.head(2).labels, four.labels[:2])
    assert four.head(2).classes == four.classes
    assert len(four.head(9)) == 4
    with pytest.raises(ValueError, match="ask for at least 1"):
        four.head(0)


IMAGES = torch.zeros(2, 3, 4, 5, dtype=torch.uint8)
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.float(), LABELS, "images are torch.float32: give torch.uint8"),
        (IMAGES[0], LABELS, "give N x C x H x W"),
        (IMAGES[:0], LABELS[:0], "give at least one image"),
        (IMAGES.permute(0, 2, 3, 1), LABELS, r"give images\.contiguous\(\)"),
        (IMAGES, LABELS.int(), "labels are torch.int32: give torch.int64"),
        (IMAGES, LABELS[:1], r"shape \(1,\) for 2 images: give one label an image"),
        (IMAGES, LABELS + 1, "labels run from 1 to 2, but 2 classes have labels 0 to 1"),
        (IMAGES, LABELS - 1, "labels run from -1 to 0"),
    ],
)
def test_bad_tensors_are_named(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelledImages(images, labels, ("a", "b"))


# --- npz ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_an_npz_with_channels_last_comes_out_with_channels_first(
    tmp_path: Path, channels: int
) -> None:
    train, test = noise(4, 6, 5, channels), noise(3, 6, 5, channels, seed=1)
    labels = np.array([2, 0, 1], np.uint8)
    path = tmp_path / "data.npz"
    np.savez(
        path, train_images=train, train_labels=np.arange(4), test_images=test, test_labels=labels
    )
    data = read_npz(path)
    assert np.array_equal(data.images.numpy(), np.moveaxis(test, 3, 1))
    assert data.labels.tolist() == [2, 0, 1]
    assert data.classes == ("0", "1", "2")
    assert np.array_equal(read_npz(path, split="train").images.numpy(), np.moveaxis(train, 3, 1))


def test_an_npz_with_channels_first_stays_as_it_is(tmp_path: Path) -> None:
    images = noise(2, 3, 8, 9)
    np.savez(tmp_path / "data.npz", test_images=images, test_labels=[0, 1])
    assert np.array_equal(read_npz(tmp_path / "data.npz").images.numpy(), images)


def test_plain_names_serve_every_split(tmp_path: Path) -> None:
    images = noise(2, 8, 9, 3)
    np.savez_compressed(tmp_path / "data.npz", images=images, labels=[1, 0])
    for split in ("train", "test"):
        data = load_data(f"npz:{tmp_path}/data.npz", split=split)
        assert np.array_equal(data.images.numpy(), np.moveaxis(images, 3, 1))
    assert len(load_data(f"npz:{tmp_path}/data.npz", limit=1)) == 1


GOOD = noise(2, 8, 9, 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GOOD, "y": [0, 1]}, "holds x, y; give it test_images and test_labels, or images"),
        (
            {"train_images": GOOD, "train_labels": [0, 1]},
            "holds train_images, train_labels; give .* or ask for these by --split train",
        ),
        ({}, "holds no arrays"),
        ({"images": GOOD / 255, "labels": [0, 1]}, "images are float64; save them as uint8"),
        ({"images": GOOD[..., 0], "labels": [0, 1]}, "save them as N x H x W x C"),
        ({"images": GOOD[:0], "labels": []}, "save at least one image"),
        ({"images": GOOD, "labels": [0, 1, 1]}, r"2 images, but labels of shape \(3,\)"),
        ({"images": GOOD, "labels": [[0], [1]]}, r"labels of shape \(2, 1\); save one label an"),
        ({"images": GOOD, "labels": [0.0, 1.0]}, "labels are float64; save them as integers"),
        ({"images": GOOD, "labels": [-1, 1]}, "labels run from -1 to 1; number the classes from 0"),
        ({"images": GOOD, "labels": [0, 2**60]}, "number the classes from 0"),
        ({"images": noise(2, 3, 8, 3), "labels": [0, 1]}, "channels may be axis 1 or axis 3"),
        ({"images": noise(2, 8, 8, 8), "labels": [0, 1]}, "no axis of channels"),
        ({"images": np.array([{}, {}]), "labels": [0, 1]}, "images is not an array of numbers"),
    ],
)
def test_bad_arrays_in_an_npz_are_named(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=rf"bad\.npz: .*{message}"):
        read_npz(tmp_path / "bad.npz")


def test_a_missing_npz_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.npz: no such file; give the path of an \.npz"):
        read_npz(tmp_path / "none.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY"])
def test_a_file_that_is_no_npz_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"text\.npz: not an \.npz file; write one with numpy"):
        read_npz(tmp_path / "text.npz")


def test_a_zip_of_something_else_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as file:
        file.writestr("images", "text")
        file.writestr("labels", "text")
    with pytest.raises(ValueError, match=r"other\.npz: images is not an array of numbers"):
        read_npz(tmp_path / "other.npz")


def test_a_damaged_npz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.npz"
    np.savez(path, images=noise(50, 8, 9, 3), labels=np.zeros(50, int))
    content = bytearray(path.read_bytes())
    content[3000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cut\.npz: damaged \(.*\); copy or write it again"):
        read_npz(path)


def test_a_name_of_two_lines_is_told_in_one() -> None:
    with pytest.raises(ValueError, match=r"^a\\nb: no such file; give the path of an \.npz file$"):
        load_data("npz:a\nb")


def test_an_npz_has_parts_where_its_arrays_say_so(tmp_path: Path) -> None:
    images, labels = noise(2, 5, 5, 3), np.arange(2)
    np.savez(tmp_path / "plain.npz", images=images, labels=labels)
    np.savez(tmp_path / "parts.npz", train_images=images, train_labels=labels)
    assert not has_parts(f"npz:{tmp_path / 'plain.npz'}")
    assert has_parts(f"npz:{tmp_path / 'parts.npz'}")
    assert has_parts("glyphs")


def sorted_npz(path: Path) -> str:
    np.savez(path, images=noise(30, 5, 5, 3), labels=np.arange(30) // 10)
    return f"npz:{path}"


@pytest.mark.parametrize("limit", [8, 10])
def test_a_limit_that_leaves_one_class_of_sorted_data_warns(tmp_path: Path, limit: int) -> None:
    name = sorted_npz(tmp_path / "x.npz")
    with pytest.warns(SuspiciousInput, match=f"first {limit} images are all of class 0: .*shuffle"):
        load_data(name, limit=limit)


@pytest.mark.parametrize("limit", [1, 7, 11, None])
def test_a_handful_or_several_classes_do_not_warn(tmp_path: Path, limit: int | None) -> None:
    assert len(load_data(sorted_npz(tmp_path / "x.npz"), limit=limit)) == (limit or 30)


# --- folder ---------------------------------------------------------------------------------------


def test_a_folder_gives_its_pixels_one_class_after_the_other_in_turn(tmp_path: Path) -> None:
    pictures = noise(5, 6, 7, 3)
    names = ["cat/a.png", "dog/a.png", "eel/a.bmp", "cat/b.PNG", "cat/c.png"]
    for name, picture in zip(names, pictures, strict=True):
        save_image(tmp_path / name, picture)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    with pytest.warns(SuspiciousInput, match=r"left out: .* no known pictures \(1 \.txt\); put"):
        data = read_folder(tmp_path)
    assert np.array_equal(data.images.numpy(), np.moveaxis(pictures, 3, 1))
    assert data.labels.tolist() == [0, 1, 2, 0, 0]
    assert data.classes == ("cat", "dog", "eel")
    (tmp_path / "cat" / "notes.txt").unlink()
    assert torch.equal(load_data(f"folder:{tmp_path}", limit=4).images, data.images[:4])


def test_a_limit_leaves_the_other_images_unread(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "1.png", noise(4, 4, 3))
    (tmp_path / "a" / "2.png").write_text("broken")
    assert len(read_folder(tmp_path, limit=1)) == 1


def test_resize_sets_the_shorter_side_and_the_crop_takes_the_middle(tmp_path: Path) -> None:
    wide, high = np.zeros((20, 60, 3), np.uint8), np.zeros((60, 20, 3), np.uint8)
    wide[:, 20:40] = high[20:40] = (200, 100, 50)
    save_image(tmp_path / "a" / "wide.png", wide)
    save_image(tmp_path / "b" / "high.png", high)
    data = load_data(f"folder:{tmp_path}", resize=10, center_crop=8)
    expected = torch.tensor([200, 100, 50], dtype=torch.uint8)[:, None, None].expand(2, 3, 8, 8)
    assert torch.equal(data.images, expected)
    assert read_folder(tmp_path, resize=10, limit=1).images.shape == (1, 3, 10, 30)


def test_a_crop_alone_cuts_the_central_square(tmp_path: Path) -> None:
    picture = noise(9, 12, 3)
    save_image(tmp_path / "a" / "1.png", picture)
    data = read_folder(tmp_path, center_crop=4)
    assert np.array_equal(data.images[0].numpy(), np.moveaxis(picture[2:6, 4:8], 2, 0))


def test_resizing_averages_over_what_it_shrinks(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 254
    save_image(tmp_path / "a" / "1.png", stripes)
    inner = read_folder(tmp_path, resize=8).images[..., 1:-1].float()
    assert (inner - 127).abs().max() < 3


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    picture = noise(4, 6, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: display after a quarter turn clockwise
    save_image(tmp_path / "a" / "1.png", picture, exif=exif)
    upright = np.rot90(picture, -1)
    assert np.array_equal(read_folder(tmp_path).images[0].numpy(), np.moveaxis(upright, 2, 0))


def test_grey_and_opaque_images_become_rgb(tmp_path: Path) -> None:
    grey, colour = noise(4, 4), noise(4, 4, 3)
    save_image(tmp_path / "a" / "grey.png", grey)
    save_image(tmp_path / "b" / "alpha.png", np.dstack([colour, np.full((4, 4), 255, np.uint8)]))
    indexed = Image.fromarray(grey).convert("P")
    indexed.save(tmp_path / "b" / "palette.png", transparency=bytes([255] * 256))
    images = read_folder(tmp_path).images.numpy()
    assert all(np.array_equal(channel, grey) for channel in (*images[0], *images[2]))
    assert np.array_equal(images[1], np.moveaxis(colour, 2, 0))


def test_what_is_transparent_is_white_and_told(tmp_path: Path) -> None:
    colour, alpha, grey = noise(4, 4, 3), noise(4, 4), noise(4, 4)
    save_image(tmp_path / "a" / "alpha.png", np.dstack([colour, alpha]))
    indexed = Image.fromarray(grey).convert("P")
    indexed.save(tmp_path / "a" / "palette.png", transparency=bytes(range(256)))
    with pytest.warns(SuspiciousInput, match="transparent parts, which are shown on white"):
        images = read_folder(tmp_path).images.numpy().astype(float)
    part = alpha / 255
    expected = colour * part[..., None] + 255 * (1 - part[..., None])
    np.testing.assert_allclose(images[0], np.moveaxis(expected, 2, 0), atol=1)
    opaque = grey / 255  # each index of the palette is as opaque as it is bright
    np.testing.assert_allclose(images[1][0], grey * opaque + 255 * (1 - opaque), atol=1)


def test_images_of_different_sizes_are_named_with_their_sizes(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "1.png", noise(4, 5, 3))
    save_image(tmp_path / "a" / "2.png", noise(4, 6, 3))
    message = r"2\.png is 6 x 4 px, .*1\.png is 5 x 4 px; .* one size: resize and center_crop"
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)


def test_a_crop_larger_than_an_image_is_named(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "1.png", noise(4, 9, 3))
    with pytest.raises(ValueError, match=r"1\.png: 9 x 4 px has no central square of 5 px; resize"):
        read_folder(tmp_path, center_crop=5)


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a" / "1.png"
    save_image(path, noise(40, 40, 3))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"1\.png: cannot be read as an image; mend or remove it"):
        read_folder(tmp_path)


def test_an_image_of_16_bits_is_named(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "1.png", noise(4, 4).astype(np.uint16))
    with pytest.raises(ValueError, match=r"1\.png: mode I;16, more than 8 bits a channel; save"):
        read_folder(tmp_path)


def fill(folder: Path, **classes: int) -> None:
    """Sub-folders with so many images, each of its own shade."""
    for name, count in classes.items():
        for number in range(count):
            shade = np.full((4, 4, 3), sum(map(ord, str(folder / name))) % 200 + number, np.uint8)
            save_image(folder / name / f"{number}.png", shade)


@pytest.mark.parametrize("second", ["test", "val"])
def test_a_folder_with_parts_gives_the_one_that_is_asked_for(second: str, tmp_path: Path) -> None:
    fill(tmp_path / "train", cat=3, dog=2)
    fill(tmp_path / second, cat=1, dog=1)
    assert has_parts(f"folder:{tmp_path}")
    for split, part in (("train", "train"), ("test", second)):
        alone = read_folder(tmp_path / part)
        found = load_data(f"folder:{tmp_path}", split=split)
        assert torch.equal(found.images, alone.images)
        assert torch.equal(found.labels, alone.labels)
        assert found.classes == ("cat", "dog")


def test_of_test_and_val_it_is_test_unless_that_has_no_classes(tmp_path: Path) -> None:
    fill(tmp_path / "train", cat=1)
    fill(tmp_path / "val", cat=2)
    fill(tmp_path, test=5)  # as of a contest: images without labels
    assert len(read_folder(tmp_path)) == 2
    fill(tmp_path / "other" / "train", cat=1)
    fill(tmp_path / "other" / "val", cat=2)
    fill(tmp_path / "other" / "test", cat=3)
    assert len(read_folder(tmp_path / "other")) == 3


def test_a_class_that_one_part_lacks_does_not_shift_the_labels(tmp_path: Path) -> None:
    fill(tmp_path / "train", ant=1, bee=1, cat=1)
    fill(tmp_path / "test", cat=2)
    data = read_folder(tmp_path)
    assert (data.classes, data.labels.tolist()) == (("ant", "bee", "cat"), [2, 2])


def test_classes_may_be_called_like_parts(tmp_path: Path) -> None:
    fill(tmp_path, train=2, test=2)
    assert not has_parts(f"folder:{tmp_path}")
    for split in ("train", "test"):
        data = load_data(f"folder:{tmp_path}", split=split)
        assert (data.classes, len(data)) == (("test", "train"), 4)


def test_folders_without_classes_or_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none: no such folder; give one that has a sub-folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(ValueError, match="no sub-folders; put the images of each class into one"):
        read_folder(tmp_path)
    save_image(tmp_path / "val" / "cat" / "1.png", noise(4, 4, 3))
    with pytest.raises(ValueError, match=r"val: no images .* holds the classes, read it instead"):
        read_folder(tmp_path)
    assert read_folder(tmp_path / "val").classes == ("cat",)


def test_empty_folders_are_classes_without_images(tmp_path: Path) -> None:
    fill(tmp_path, ant=1, cat=2)
    (tmp_path / "bee" / ".git").mkdir(parents=True)
    data = read_folder(tmp_path)
    assert (data.classes, data.labels.tolist()) == (("ant", "bee", "cat"), [0, 2, 2])


def test_folders_that_hold_something_else_or_nothing_at_all_are_told(tmp_path: Path) -> None:
    (tmp_path / "ant").mkdir()
    with pytest.raises(ValueError, match="no images in its sub-folders; put those of each class"):
        read_folder(tmp_path)
    fill(tmp_path, cat=1)
    (tmp_path / "ant" / "picture.heic").touch()
    with pytest.raises(ValueError, match=r"ant: no images .*add some or remove it"):
        read_folder(tmp_path)


@pytest.mark.parametrize("option", ["resize", "center_crop", "limit"])
def test_sizes_and_limits_below_one_are_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 0: give at least 1"):
        read_folder(tmp_path, **{option: 0})


# --- by name --------------------------------------------------------------------------------------


def test_a_wrong_name_lists_the_right_ones() -> None:
    assert {"folder:DIR", "glyphs", "npz:FILE"} <= set(data_names())
    with pytest.raises(
        ValueError, match=r"'glyfs' \(nearest: glyphs\); there are .*folder:DIR.*glyphs.*npz:FILE"
    ):
        load_data("glyfs")


@pytest.mark.parametrize(
    ("name", "usage"),
    [("npz", "npz:FILE"), ("npz:", "npz:FILE"), ("folder", "folder:DIR"), ("glyphs:9", "glyphs")],
)
def test_a_name_with_or_without_its_place_shows_how_it_is_written(name: str, usage: str) -> None:
    with pytest.raises(ValueError, match=f"write {usage}$"):
        load_data(name)


def test_a_place_may_contain_colons(tmp_path: Path) -> None:
    np.savez(tmp_path / "a:b.npz", images=GOOD, labels=[0, 1])
    assert len(load_data(f"npz:{tmp_path}/a:b.npz")) == 2


def test_data_of_one_size_is_not_silently_left_unresized() -> None:
    with pytest.raises(ValueError, match="glyphs has images of one size: resize and crop only fol"):
        load_data("glyphs", resize=64)


def test_a_wrong_split_or_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="'val': choose train, test, held-out, kept"):
        load_data("glyphs", split="val")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give at least 1, or None for all"):
        load_data("glyphs", limit=0)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="another data set is called 'glyphs'"):
        data_set("glyphs")(lambda _: LabelledImages(IMAGES, LABELS, ("a", "b")))


def test_a_reader_that_gives_all_whatever_is_asked_gives_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DATA_SETS, "_entries", dict(DATA_SETS._entries))
    all_of_them = load_data("glyphs", limit=30)
    data_set("all-of-them")(lambda _: all_of_them)
    assert load_data("all-of-them", limit=7).labels.equal(all_of_them.labels[:7])
    assert len(load_data("all-of-them")) == 30
    data_set("a-tuple")(lambda _: (all_of_them.images, all_of_them.labels))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="a-tuple gives a tuple; let its reader return Labelled"):
        load_data("a-tuple")


@pytest.mark.parametrize(
    ("labels", "doubted"), [([1, 2, 3, 3], True), ([0, 1, 2, 3], False), ([1, 1, 3, 3], False)]
)
def test_labels_that_are_numbered_from_1_are_doubted(
    labels: list[int], doubted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, images=np.zeros((4, 8, 8, 3), np.uint8), labels=np.array(labels))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_npz(path)
    told = [str(each.message) for each in caught]
    assert told == (
        [f"{path}: labels run from 1 to 3, so class 0 has no image; number from 0"] * doubted
    )
