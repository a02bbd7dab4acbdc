"""What a recipe may add to the paper's: schedules, averages, soft labels, images held out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from augmented import augment
from tiny_runs import colours, save_as_npz, tiny_recipe, tiny_run
from upright.checks import SuspiciousInput
from upright.data import load_data
from upright.families import Axis, Chain, OfPixels
from upright.later import LATER_IN_RECIPES
from upright.ranks import Part
from upright.space import Space
from upright.train import Recipe, RunDirectory, load_network, train
from upright.train.batches import Augmented, mirrors_alone, mixing_shares
from upright.train.learner import Learner
from upright.train.parallel import OfPart
from upright.train.targets import mixed, soft_labels
from upright.train.teacher import asked_once, pays_at_once
from upright.warp import warp

pytestmark = pytest.mark.usefixtures("mishaps")  # the network tiny is known

CPU = torch.device("cpu")


def learner(**changes: object) -> Learner:
    made = Learner(tiny_recipe(**changes), colours(), CPU)
    made.make_ready()
    return made


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Schedules.


@given(steps=st.integers(1, 500), warmup=st.integers(0, 20))
def test_a_cosine_falls_from_the_whole_rate_to_nearly_none(steps: int, warmup: int) -> None:
    recipe = Recipe(steps=steps, cosine=True, warmup=warmup)
    rates = [recipe.learning_rate_at(step) for step in range(steps)]
    wanted = [0.1 * math.cos(math.pi * step / steps / 2) ** 2 for step in range(steps)]
    rising = [min(1.0, (step + 1) / max(1, warmup)) for step in range(steps)]
    np.testing.assert_allclose(rates, np.multiply(wanted, rising), atol=1e-12)


def test_with_a_cosine_drops_and_decay_mean_nothing_and_are_not_part_of_the_recipe() -> None:
    plain = Recipe(cosine=True)
    assert Recipe(cosine=True, drops=(0.2,), decay=0.5, decay_every=7) == plain
    assert plain.hash != Recipe().hash


def test_all_of_it_is_off_by_default_and_leaves_the_hash_of_the_papers_recipe() -> None:
    known = ["held_out", "cosine", "warmup", "average", "smoothing", "cutout", "mixup", "teacher"]
    known += ["jitter"]
    assert not any(getattr(Recipe(), name) for name in known)
    assert set(known) <= set(LATER_IN_RECIPES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"average": 1.0}, "keep the first weights for ever"),
        ({"smoothing": 1.5}, "smoothing is a part, 0 to 1"),
        ({"mixup": -0.1}, "mixup is a part, 0 to 1"),
        ({"teacher_share": 0.5}, "needs a teacher"),
        ({"objective": "LocNet(black)", "mixup": 0.1}, "LocNet has no labels"),
        ({"warmup": -1}, "warmup must be at least 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Recipe(**changes)


# The average of weights.


def test_the_average_follows_its_rule_at_every_step() -> None:
    one = learner(average=0.7)
    wanted: dict[str, np.ndarray] = {}
    for step in range(8):
        one.step(step)
        rate = max(0.3, 1 / (step + 1))
        for name, live in one.model.state_dict().items():
            before = wanted.get(name, np.zeros(live.shape))
            moved = rate if live.is_floating_point() else 1  # a count is what it is
            wanted[name] = before + moved * (live.double().numpy() - before)
    found = one.state()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[f"average/{name}"], value, rtol=1e-4, atol=1e-6)


def test_steps_are_the_same_with_and_without_an_average() -> None:
    plain, averaged = learner(), learner(average=0.9)
    for step in range(5):
        plain.step(step)
        averaged.step(step)
    for name, tensor in plain.state().items():
        assert torch.equal(averaged.state()[name], tensor)


def test_what_comes_out_has_the_averaged_weights_in_memory_and_from_the_folder(
    tmp_path: Path,
) -> None:
    run = tiny_run(tmp_path / "run", average=0.8)
    checkpoint = RunDirectory.open(tmp_path / "run").load()
    assert checkpoint is not None
    loaded = load_network(tmp_path / "run").state_dict()
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, checkpoint.tensors[f"average/{name}"])
        assert torch.equal(tensor, loaded[name])
    weights = [name for name, _ in run.model.named_parameters()]
    assert any(
        not torch.equal(loaded[name], checkpoint.tensors[f"model/{name}"]) for name in weights
    )


def test_a_run_of_everything_continues_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    teacher = tiny_run(tmp_path / "teacher", steps=3)
    every = {
        "average": 0.8,
        "smoothing": 0.1,
        "mixup": 0.4,
        "cutout": 3,
        "jitter": "brightness(0.2) zoom(0.9..1.1)",
        "cosine": True,
        "warmup": 3,
        "teacher": str(teacher.path),
        "teacher_share": 0.5,
    }
    whole = tiny_run(tmp_path / "whole", **every)
    recipe = tiny_recipe(**every)
    stopped = Learner(recipe, colours(), CPU)
    for step in range(5):
        stopped.step(step)
    fresh = Learner(recipe, colours(), CPU)
    fresh.restore({name: tensor.clone() for name, tensor in stopped.state().items()})
    for step in range(5, recipe.steps):
        fresh.step(step)
    for name, tensor in fresh.result().state_dict().items():
        assert torch.equal(tensor, whole.model.state_dict()[name])


# Labels.


def by_hand(recipe: Recipe, labels: list[int], said: np.ndarray | None) -> np.ndarray:
    rows = []
    for place, label in enumerate(labels):
        row = np.full(3, recipe.smoothing / 3)
        row[label] += 1 - recipe.smoothing
        if said is not None:
            row = (1 - recipe.teacher_share) * row + recipe.teacher_share * said[place]
        rows.append(row)
    return np.stack(rows)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_soft_labels_are_a_mixture_of_label_all_classes_and_teacher(
    smoothing: float, share: float
) -> None:
    recipe = replace(tiny_recipe(smoothing=smoothing), teacher="there", teacher_share=share)
    labels, logits = torch.tensor([2, 0]), torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    found = soft_labels(recipe, labels, 3, logits.softmax(1))
    said = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    # A share of 0 with a teacher means all of it.
    np.testing.assert_allclose(found, by_hand(recipe, [2, 0], said), rtol=1e-6)
    assert recipe.teacher_share == (share or 1.0)
    np.testing.assert_allclose(
        soft_labels(recipe, labels, 3, None),
        by_hand(recipe, [2, 0], None),
        rtol=1e-6,
    )


def test_smoothing_is_that_of_torchs_cross_entropy() -> None:
    logits, labels = torch.randn(5, 3, generator=generator()), torch.tensor([0, 1, 2, 1, 0])
    soft = soft_labels(tiny_recipe(smoothing=0.15), labels, 3, None)
    wanted = F.cross_entropy(logits, labels, label_smoothing=0.15)
    torch.testing.assert_close(F.cross_entropy(logits, soft), wanted)


def test_a_mixture_mixes_images_and_labels_by_the_same_shares() -> None:
    images, others = torch.rand(2, 3, 4, 5, 5, generator=generator())
    labels, other_labels = torch.eye(3), torch.eye(3).roll(1, 0)
    shares = torch.tensor([0.0, 0.25, 1.0])
    pictures, said = mixed(images, labels, others, other_labels, shares)
    for place, share in enumerate(shares.tolist()):
        torch.testing.assert_close(
            pictures[place], (1 - share) * images[place] + share * others[place]
        )
        torch.testing.assert_close(
            said[place], (1 - share) * labels[place] + share * other_labels[place]
        )


def test_shares_of_a_mixture_lie_between_none_and_what_is_told() -> None:
    shares = mixing_shares(tiny_recipe(mixup=0.4), generator(), 4000)
    assert 0 <= shares.min() < 0.01
    assert 0.39 < shares.max() < 0.4
    assert abs(float(shares.mean()) - 0.2) < 0.01


def test_images_are_mixed_with_others_of_the_batch_and_never_with_themselves() -> None:
    one = learner(mixup=1.0)
    one._prepare(0)
    assert set(one._rows.tolist()) == set(one._others.tolist())
    assert not (one._rows == one._others).any()


SHOWN = [{}, {"flips": False}, {"view": 6}, {"mixup": 0.4}, {"mixup": 0.4, "flips": False}]
AUGMENTED = [{"cutout": 3}, {"max_shift": 1}, {"jitter": "brightness(0.2)"}]


@pytest.mark.parametrize("view", [None, 5])
@pytest.mark.parametrize("changes", [*SHOWN, *AUGMENTED])
def test_a_teacher_says_what_its_network_says_of_the_images_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], view: int | None
) -> None:
    """In its own view, and whether it is asked once, where it can be, or in each step."""
    teacher = tiny_run(tmp_path / "teacher", view=view)
    asked = []
    monkeypatch.setattr(
        "upright.train.learner.asked_once", lambda *them: asked.append(them) or asked_once(*them)
    )
    one = learner(teacher=str(teacher.path), **changes)
    assert bool(asked) is (changes in SHOWN)
    for step in range(3):
        one._prepare(step)
        seen, others = one._rows.clone(), one._others.clone()
        for rows in (seen, others):
            images, labels = one._examples(rows)
            shown = images[..., 1:6, 1:6] if view else images
            with torch.no_grad():
                torch.testing.assert_close(labels, teacher.model(shown).softmax(1))


def test_a_teacher_is_asked_once_of_each_image_and_its_mirror_image_and_leaves_no_trace() -> None:
    recipe, data, asked = tiny_recipe(teacher="there", batch=5), colours(), []

    def model(images: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        asked.append(len(images))
        return images[..., 0]  # the first column tells an image from its mirror image

    told = asked_once(lambda images: model(images).mean(2), None, recipe, data)
    assert sorted(asked) == sorted(2 * [20, 20, 8])  # whole passes, and what is left
    rows = torch.tensor([47, 0, 20, 20])
    draws = torch.tensor([0.1, 0.9, 0.1, 0.9])
    originals = data.as_float()[rows]
    images = torch.where((draws < 0.5)[:, None, None, None], originals.flip(-1), originals)
    found = told(Augmented(images, data.labels[rows], rows, draws))
    torch.testing.assert_close(found, images[..., 0].mean(2).softmax(1))
    assert sum(asked) == 2 * len(data)


@pytest.mark.parametrize("change", AUGMENTED)
def test_what_changes_images_more_than_a_mirror_is_known_to_do_so(
    change: dict[str, object],
) -> None:
    images = colours().as_float()
    assert mirrors_alone(tiny_recipe())
    assert not mirrors_alone(tiny_recipe(**change))
    changed = augment(images, tiny_recipe(**change), generator())
    ways = torch.stack((images, images.flip(-1)))
    assert not (ways == changed).flatten(2).all(2).any(0).all()


def test_a_teacher_is_asked_once_where_that_is_less_work_and_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = colours()
    both, one = tiny_recipe(teacher="there"), tiny_recipe(teacher="there", flips=False)
    for recipe, images in ((both, 2 * len(data)), (one, len(data))):
        assert pays_at_once(recipe, data, images)
        assert not pays_at_once(recipe, data, images - 1)
    for change in AUGMENTED:
        assert not pays_at_once(tiny_recipe(teacher="there", **change), data, 10**9)
    needed = 2 * len(data) * len(data.classes) * 4
    monkeypatch.setattr("upright.train.teacher._MOST_BYTES", needed)
    assert pays_at_once(both, data, 10**9)
    monkeypatch.setattr("upright.train.teacher._MOST_BYTES", needed - 1)
    assert not pays_at_once(both, data, 10**9)


def test_a_run_that_is_finished_or_refused_asks_no_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = tiny_run(tmp_path / "teacher")
    recipe = tiny_recipe(teacher=str(teacher.path))
    train(recipe, tmp_path / "run", data=colours())
    monkeypatch.setattr("upright.train.learner.asked_once", lambda *_: pytest.fail("asked"))
    assert train(recipe, tmp_path / "run", data=colours(), resume=True).finished
    with pytest.raises(ValueError, match="holds this run already"):
        train(recipe, tmp_path / "run", data=colours())


def test_a_teacher_of_other_classes_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    teacher, data = tiny_run(tmp_path / "teacher"), colours()
    recipe, run = tiny_recipe(teacher=str(teacher.path)), tmp_path / "run"
    more = replace(data, classes=(*data.classes, "black"))
    grey = replace(data, images=data.images[:, :1].contiguous())
    for other, has in ((more, "has 4 classes and 3"), (grey, "has 3 classes and 1")):
        with pytest.raises(ValueError, match=f"has 3 classes and looks at 3 channels, .* {has}"):
            train(recipe, run, data=other)
    assert not run.exists()
    called = replace(data, classes=("rot", "green", "blue"))
    with pytest.warns(SuspiciousInput, match="red, green, blue, colours calls them rot, green"):
        train(recipe, run, data=called)


def test_a_recipe_notes_the_teachers_weights_and_refuses_others(tmp_path: Path) -> None:
    tiny_run(tmp_path / "teacher", steps=2)
    recipe = tiny_recipe(teacher=str(tmp_path / "teacher"), steps=2)
    run = train(recipe, tmp_path / "run", data=colours())
    assert len(run.recipe.teacher_digest) == 64
    tiny_run(tmp_path / "other", steps=2, seed=1)
    other = replace(run.recipe, teacher=str(tmp_path / "other"))
    with pytest.raises(ValueError, match="not those of the recipe's teacher"):
        train(other, tmp_path / "again", data=colours())


def test_a_teacher_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no teacher is called '.*nowhere'; there are RUN-"):
        train(tiny_recipe(teacher=str(tmp_path / "nowhere")), tmp_path / "run", data=colours())


# Images that are changed at random.


def test_jitter_changes_each_image_by_a_pose_of_its_own_within_the_space() -> None:
    images = torch.full((500, 3, 8, 8), 0.5)
    changed = augment(images, tiny_recipe(jitter="brightness(-0.1..0.3)"), generator())
    added = changed[:, 0, 0, 0] - 0.5
    assert torch.allclose(changed, (0.5 + added)[:, None, None, None].expand_as(images))
    assert len(set(added.tolist())) > 450
    assert -0.1 <= added.min() < -0.09
    assert 0.29 < added.max() <= 0.3 + 1e-6


def test_jitter_moves_images_as_warp_does_and_leaves_all_else_that_is_drawn() -> None:
    space = Space.of("shift(10%) zoom(0.8..1.2)")
    images, draws = torch.rand(6, 3, 10, 10, generator=generator(1)), generator()
    torch.rand(6, generator=draws)  # who is mirrored
    poses = space.in_pixels(10, 10).sample(6, generator=draws)
    plain = augment(images, tiny_recipe(), generator())
    changed = augment(images, tiny_recipe(jitter=space), generator())
    assert torch.equal(changed, warp(plain, poses))


def test_a_part_of_a_batch_is_jittered_as_in_the_whole() -> None:
    images, recipe = torch.rand(7, 3, 8, 8, generator=generator(1)), tiny_recipe(jitter="hue(40)")
    whole = augment(images, recipe, generator())
    first, last = (
        augment(images[part.start : part.stop], recipe, OfPart.on(CPU, part).manual_seed(0))
        for part in (Part(0, 4, 7), Part(4, 7, 7))
    )
    torch.testing.assert_close(torch.cat((first, last)), whole)


def test_jitter_takes_one_s_own_families_whose_code_the_recipe_knows() -> None:
    class Darker(OfPixels):
        name = "darker"
        axes = (Axis("darker", "", -0.3, 0.3),)

        def apply(self, images: Tensor, values: Tensor) -> Tensor:
            return images - values[..., 0]

    recipe = tiny_recipe(jitter=Space(Chain((Darker(),))))
    assert recipe.families_digest != tiny_recipe().families_digest == ""
    moved = augment(torch.full((4, 3, 8, 8), 0.5), recipe, generator())
    assert len({*moved[:, 0, 0, 0].tolist()}) == 4


def test_jitter_is_a_text_or_a_space() -> None:
    recipe = tiny_recipe(jitter="hue(40)")
    assert recipe == tiny_recipe(jitter=Space.of("hue(40)")) == Recipe.from_json(recipe.as_json())
    assert recipe.hash != tiny_recipe().hash == replace(recipe, jitter=None).hash


# Holes.


@pytest.mark.parametrize("side", [1, 4, 5])
def test_a_hole_is_a_square_about_a_place_of_the_image(side: int) -> None:
    recipe = tiny_recipe(cutout=side, flips=False)
    cut = augment(torch.ones(2000, 2, 12, 9), recipe, generator())
    for image in cut:
        holes = image[0] == 0
        assert torch.equal(image[0], image[1])
        rows, columns = holes.any(1), holes.any(0)
        assert torch.equal(holes, rows[:, None] & columns[None, :])  # a rectangle
        assert 1 <= max(rows.sum(), columns.sum()) <= side + 1
    sizes = (cut[:, 0] == 0).sum((1, 2)).float()
    assert sizes.max() == side**2  # most lie inside
    assert (cut[:, 0] == 0).any(0).all()  # every place is met


def test_nothing_else_that_is_drawn_changes_with_a_hole() -> None:
    images = torch.rand(6, 3, 8, 8, generator=generator(1))
    plain = augment(images, tiny_recipe(), generator())
    cut = augment(images, tiny_recipe(cutout=3), generator())
    assert torch.equal(cut, plain * (cut != 0))


@pytest.mark.parametrize(("cutout", "view"), [(8, None), (16, None), (4, 4)])
def test_a_hole_that_may_hide_all_that_is_seen_is_refused(cutout: int, view: int | None) -> None:
    seen = view or 8
    with pytest.raises(
        ValueError, match=rf"cutout of {cutout} px .*, {seen} x {seen} px; give few"
    ):
        learner(cutout=cutout, view=view)
    assert learner(cutout=seen - 1, view=view)


# A part to choose by.


def saved(count: int, folder: Path) -> Path:
    save_as_npz(colours(count), folder / "colours.npz")
    return folder / "colours.npz"


def test_a_tenth_is_held_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    file = saved(57, tmp_path)
    whole = load_data(f"npz:{file}", split="train")
    held, kept = (load_data(f"npz:{file}", split=part) for part in ("held-out", "kept"))
    assert (len(held), len(kept)) == (5, 52)
    parts = torch.cat((held.images, kept.images)).flatten(1)
    both = sorted(map(tuple, parts.tolist()))
    assert both == sorted(map(tuple, whole.images.flatten(1).tolist()))
    again = load_data(f"npz:{file}", split="held-out", limit=3)
    assert torch.equal(again.images, held.images[:3])


def test_a_run_that_holds_out_a_part_never_sees_it(tmp_path: Path) -> None:
    file = saved(57, tmp_path)
    recipe = tiny_recipe(data=f"npz:{file}", held_out=True, steps=2)
    kept = load_data(recipe.data, split="kept")
    run = train(recipe, tmp_path / "run")
    assert RunDirectory.open(run.path).data_digest == kept.digest()
    assert recipe.load_data("test").digest() == load_data(recipe.data).digest()


def test_too_few_images_have_no_tenth(tmp_path: Path) -> None:
    file = saved(9, tmp_path)
    with pytest.raises(ValueError, match="9 training images have no tenth"):
        load_data(f"npz:{file}", split="held-out")
