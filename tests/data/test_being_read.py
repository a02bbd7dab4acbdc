"""Images that are read beside whoever uses them are those that would be read before."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from upright import SuspiciousInput, evaluate
from upright.data import ClassNames, being_read, folder, load_data
from upright.data.being_read import BeingRead
from upright.data.folder import read_folder
from upright.evaluation.ahead import one_ahead
from upright.pictures import open_picture

COUNT = 200
PIXELS = torch.randint(
    256, (COUNT, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


class Disk:
    """Gives images, some later than others, and notes which were read."""

    def __init__(self, broken: int | None = None) -> None:
        self.read, self.broken, self.lock = list[int](), broken, threading.Lock()

    def __call__(self, place: int) -> Tensor:
        time.sleep(0.002 * (place % 3))
        with self.lock:
            self.read.append(place)
        if place == self.broken:
            raise ValueError(f"image {place} cannot be read; mend or remove it")
        return PIXELS[place]


def made(disk: Disk) -> BeingRead:
    labels = torch.arange(COUNT) % 4
    return BeingRead(disk, PIXELS[0].shape, labels, ("a", "b", "c", "d"))


def read(data: BeingRead, places: Tensor) -> tuple[Tensor, Tensor]:
    parts = [(images.clone(), labels) for images, labels in data.read(places)]
    images, labels = zip(*parts, strict=True)
    return torch.cat(images), torch.cat(labels)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_in_any_order_every_image_is_itself(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(being_read, "_threads", lambda: threads)
    disk = Disk()
    data, places = made(disk), torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    images, labels = read(data, places)
    assert images.equal(PIXELS[places])
    assert labels.equal(places % 4)
    assert sorted(disk.read) == [*range(COUNT)]
    assert data.images.equal(PIXELS)
    assert len(disk.read) == COUNT  # none is read twice


def test_no_more_is_read_ahead_than_is_said() -> None:
    disk = Disk()
    reading = made(disk).read(torch.arange(COUNT))
    next(reading)
    time.sleep(0.3)
    assert 16 <= len(disk.read) <= 16 + 64
    reading.close()  # type: ignore[attr-defined]


def test_a_part_needs_no_others() -> None:
    disk = Disk()
    part = made(disk).take(torch.tensor([7, 3]))
    assert part.images.equal(PIXELS[[7, 3]])
    assert sorted(disk.read) == [3, 7]
    assert made(disk).head(5).images.equal(PIXELS[:5])
    image, label = made(disk)[9]
    assert (image * 255).round().to(torch.uint8).equal(PIXELS[9])
    assert label == 1


def test_an_error_comes_when_its_image_does() -> None:
    places = torch.arange(COUNT)
    reading = made(Disk(broken=40)).read(places)
    assert sum(len(labels) for _, labels in (next(reading), next(reading))) == 32
    with pytest.raises(ValueError, match="image 40 cannot be read"):
        next(reading)


def test_an_evaluation_begins_before_all_is_read_and_finds_the_same() -> None:
    disk, at_first = Disk(), list[int]()

    def model(images: Tensor) -> Tensor:
        at_first.append(len(disk.read))
        return images.mean((2, 3)).repeat(1, 2)[:, :4]

    data = made(disk)
    whole = evaluate(model, (PIXELS, data.labels), attacks=["wo-3"], sample=20)
    at_first.clear()
    found = evaluate(model, data, attacks=["wo-3"], sample=20)
    assert found.natural_loss.equal(whole.natural_loss)
    assert found.attacks["wo-3"].correct.equal(whole.attacks["wo-3"].correct)
    assert len(disk.read) == 20


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    for place, pixels in enumerate(PIXELS[:30]):
        folder = tmp_path / "photographs" / f"class-{place % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))
        picture.resize((12, 12)).save(folder / f"{place:03}.png")
    return tmp_path / "photographs"


def test_a_folder_by_name_is_a_folder_that_is_read(photographs: Path) -> None:
    known = read_folder(photographs, resize=10, center_crop=8)
    named = load_data(f"folder:{photographs}", resize=10, center_crop=8)
    assert isinstance(named, BeingRead)
    assert repr(named) == "BeingRead(30 x 3 x 8 x 8, 3 classes)"
    assert not named._there

    def model(images: Tensor) -> Tensor:
        return images.mean((2, 3))

    one, other = (evaluate(model, data, attacks=["wo-2"]) for data in (known, named))
    assert one.natural_loss.equal(other.natural_loss)
    assert named.images.equal(known.images)
    assert named.digest() == known.digest()


def test_what_cannot_be_opened_is_said_before_anything_is_measured(photographs: Path) -> None:
    Image.new("I;16", (12, 12)).save(photographs / "class-1" / "zzz.png")
    deep = load_data(f"folder:{photographs}")
    with pytest.raises(ValueError, match=r"zzz\.png: mode I;16, more than 8 bits"):
        next(deep.read(torch.arange(31)))
    (photographs / "class-1" / "zzz.png").write_bytes(b"no picture")
    data = load_data(f"folder:{photographs}")

    def model(images: Tensor) -> Tensor:
        raise AssertionError(images)

    for part in ({}, {"minutes": 1}, {"sample": 31}):
        with pytest.raises(ValueError, match=r"zzz\.png: cannot be read as an image"):
            evaluate(model, data, attacks=["rnd"], **part)


def test_of_a_part_no_other_files_are_opened(
    photographs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their classes are called in the model."""
    opened = set[Path]()

    def open_and_note(path: Path) -> Image.Image:
        opened.add(path)
        return open_picture(path)

    monkeypatch.setattr(folder, "open_picture", open_and_note)
    data = ClassNames(("class-2", "class-1", "class-0")).label(load_data(f"folder:{photographs}"))
    found = evaluate(lambda images: images.mean((2, 3)), data, attacks=["rnd"], sample=4)
    assert found.places is not None
    names = {f"{place:03}.png" for place in found.places.tolist()}
    assert {path.name for path in opened} == names | {"000.png"}  # whose size all have
    assert data.take(found.places).labels.equal(2 - found.places % 3)


def test_of_what_is_held_out_no_other_files_are_decoded(
    photographs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def open_and_note(path: Path) -> Image.Image:
        opened.append(path)
        return open_picture(path)

    whole = load_data(f"folder:{photographs}", split="train")
    monkeypatch.setattr(folder, "open_picture", open_and_note)
    data = load_data(f"folder:{photographs}", split="held-out")
    assert len(data) == len(whole) // 10
    # Each is opened once to look at it and once to decode it; another tells which size all have.
    assert 0 < len(opened) <= 2 * len(data) + 2 < len(whole)


def test_all_at_once_are_those_that_were_read_before() -> None:
    disk = Disk()
    data = made(disk)
    some = torch.tensor([5, 199, 0])
    assert data.take(some).images.equal(PIXELS[some])
    assert data.images.equal(PIXELS)
    assert data.images.is_contiguous()
    assert sorted(disk.read) == [*range(COUNT)]
    assert data.take(some).images.equal(PIXELS[some])


def test_a_place_without_its_word_is_told_how_it_is_written(photographs: Path) -> None:
    with pytest.raises(ValueError, match=r"c\.npz is a file: write npz:c\.npz"):
        load_data("c.npz")
    with pytest.raises(ValueError, match=f"is a folder: write folder:{photographs}"):
        load_data(str(photographs))


@pytest.mark.parametrize("use", ["all", "evaluate"])
def test_what_threads_warn_of_names_the_line_that_asked(tmp_path: Path, use: str) -> None:
    for name, alpha in (("a", 255), ("b", 128)):  # the first is opened to tell the size
        (tmp_path / name).mkdir()
        Image.new("RGBA", (6, 6), (0, 0, 0, alpha)).save(tmp_path / name / "picture.png")
    data = load_data(f"folder:{tmp_path}")
    assert isinstance(data, BeingRead)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspiciousInput)
        if use == "all":
            assert len(data.images) == 2
        else:
            evaluate(lambda images: images.mean((2, 3))[:, :2], data, attacks=[])
    (warning,) = caught
    assert "transparent parts" in str(warning.message)
    assert warning.filename == __file__


class TestOneAhead:
    def test_items_come_in_order_and_the_next_is_made_meanwhile(self) -> None:
        made_so_far = list[int]()

        def items() -> Iterator[int]:
            for number in range(4):
                made_so_far.append(number)
                yield number

        seen = []
        for item in one_ahead(items()):
            time.sleep(0.05)
            assert made_so_far == [*range(min(4, item + 2))]
            seen.append(item)
        assert seen == [0, 1, 2, 3]

    def test_an_error_comes_in_its_turn(self) -> None:
        def items() -> Iterator[int]:
            yield 1
            raise ValueError("the second")

        coming = one_ahead(items())
        assert next(coming) == 1
        with pytest.raises(ValueError, match="the second"):
            next(coming)

    def test_no_thread_stays_behind(self) -> None:
        before = threading.active_count()
        coming = one_ahead(iter(range(9)))
        next(coming)
        coming.close()  # type: ignore[attr-defined]
        assert threading.active_count() == before

    def test_an_evaluation_that_fails_leaves_no_thread_behind(self) -> None:
        def model(_: Tensor) -> Tensor:
            raise RuntimeError("out of order")

        before = threading.active_count()
        with pytest.raises(RuntimeError, match="out of order") as failure:
            evaluate(model, made(Disk()), attacks=["wo-2"])
        # Frames that wait for their turn are held by the traceback until the collector comes.
        assert failure.tb is not None
        assert threading.active_count() == before
