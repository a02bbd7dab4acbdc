"""The benchmarks run at a tiny size, and what they say of other tools is so."""

from __future__ import annotations

import dataclasses
import importlib
import json
import warnings
from importlib import import_module as load
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cheap_compiler import compiled_cheaply
from made_up_records import made_up_record
from upright import Pose, evaluate, warp
from upright.data import load_data
from upright.record_files import RecordFolder
from upright.train import Recipe, train
from upright.workers import Task


def rivals_with(library: str) -> Any:
    rivals = load("rivals")
    if not rivals.is_installed(library):
        pytest.skip(f"{library} is not installed: it comes with the extra bench")
    return rivals


def some_network() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(3 * 32 * 32, 10)
    layer.weight.data = torch.randn(layer.weight.shape, generator=generator)
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer).eval()


def brighter_half() -> nn.Module:
    """Says 0 where the left half of an image is brighter, and 1 where the right one is."""
    layer = nn.Linear(3 * 32 * 32, 10)
    left = (torch.arange(32) < 16).float().expand(3, 32, 32).flatten()
    layer.weight.data = torch.stack([left, 1 - left, *torch.zeros(8, len(left))])
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer).eval()


def spot(x: float, y: float, *, height: int = 32, width: int = 32) -> Tensor:
    """A soft spot, as one image of three channels."""
    rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
    return torch.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 8).expand(1, 3, -1, -1).clone()


def centre(image: Tensor) -> tuple[float, float]:
    """Where the spot is: x and y in pixels."""
    brightness = image[0, 0] / image[0, 0].sum()
    x = float((brightness.sum(0) * torch.arange(image.shape[-1])).sum())
    y = float((brightness.sum(1) * torch.arange(image.shape[-2])).sum())
    return x, y


def foolbox_moved(image: Tensor, dx: float, dy: float, angle: float) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eagerpy = importlib.import_module("eagerpy")
        foolbox = importlib.import_module("foolbox.attacks.spatial_attack_transformations")
        moved = foolbox.rotate_and_shift(eagerpy.astensor(image), (dx, dy), angle).raw
    assert isinstance(moved, Tensor)
    return moved


@pytest.mark.parametrize("forward", ["eager", "compiled"])
def test_the_cost_of_a_search_counts_all_its_passes(
    forward: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)  # slow, and not what is tested
    options = [
        "--network",
        "resnet8x0.25",
        "--search-images",
        "2",
        "--repeats",
        "1",
        "--images",
        "0",
    ]
    load("attack").main([*options, "--forward", forward, "--json", str(tmp_path / "figures.json")])
    cost = json.loads((tmp_path / "figures.json").read_text())["search_cost"]
    looks, natural = 2, 1
    assert cost["passes"] == 2 * (775 + natural + looks)
    assert min(cost["search"], cost["plain"], cost["around"]) > 0


def test_all_tools_are_asked_about_the_same_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = load("comparison")
    quick = tuple(tool for tool in comparison.TOOLS if tool.quick)
    monkeypatch.setattr(comparison, "TOOLS", quick)
    recipe = Recipe(
        objective="std", data="glyphs", train_images=32, model="convnet", steps=2, batch=8
    )
    run = train(recipe, tmp_path / "run").path
    rows = comparison.compare(images=1, repeats=1, steps=1, runs=tmp_path, weak=run, robust=run)
    assert {row["images"] for row in rows} == {1}
    by_tool = {row["tool"]: row["accuracy"] for row in rows}
    assert by_tool["upright, every pose"] == by_tool["upright, accuracy alone"]
    assert "weak: upright, every pose" in capsys.readouterr().out


def test_a_training_step_is_held_against_its_own_passes(tmp_path: Path) -> None:
    options = ["--model", "resnet8x0.25", "--batch", "2", "--repeats", "1"]
    load("train").main([*options, "--json", str(tmp_path / "figures.json")])
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert {row["objective"]: row["passes"] for row in rows} == {
        "std*": "train 2",
        "AT(rob, Wo-10)": "search 20 + train 2",
        "KL(rob, Wo-10)": "search 22 + train 4",
        "KL-C(mix, S-PGD)": "5×(ascent 2) + train 4",
    }


def test_foolbox_moves_2_906_px_when_asked_for_3() -> None:
    rivals_with("foolbox")
    x, y = centre(foolbox_moved(spot(15, 15), 3, 0, 0))
    assert (x, y) == pytest.approx((15 - 3 * 31 / 32, 15), abs=1e-4)


def test_foolbox_moves_too_far_on_an_image_that_is_not_square() -> None:
    rivals_with("foolbox")
    x, _ = centre(foolbox_moved(spot(31, 15, width=64), 3, 0, 0))
    assert x == pytest.approx(31 - 3 * 63 / 32, abs=1e-4)


def test_foolbox_translates_before_it_rotates() -> None:
    rivals_with("foolbox")
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    shift, turn = Pose.of(dx=-3 * 31 / 32, dy=1.5 * 31 / 32), Pose.of(angle=20.0)
    expected = warp(image, shift.compose(then=turn))
    torch.testing.assert_close(foolbox_moved(image, 3, -1.5, 20), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("limits", [{}, {"shift_px": 4.5, "turns": 7}])
def test_on_foolboxs_poses_we_answer_as_foolbox_for_every_image(limits: dict[str, Any]) -> None:
    rivals, comparison = rivals_with("foolbox"), load("comparison")
    data = load_data("glyphs", limit=16)
    model, images = some_network(), data.images.float() / 255
    labels = model(images).argmax(1)
    answer = rivals.foolbox_answer(model, images, labels, **limits)
    assert 0 < answer.correct.sum() < len(labels)
    poses = comparison.Listed(rivals.foolbox_poses(**limits))
    ours = evaluate(model, (images, labels), attacks=[poses])
    assert torch.equal(ours.attacks["listed"].correct, answer.correct)


def test_art_tries_155_poses_without_a_vertical_shift() -> None:
    rivals = rivals_with("art")
    attack = rivals.art_attack(some_network(), spot(15, 15))
    tried: list[tuple[int, int, float]] = []

    def note(pixels: object, down: int, right: int, angle: float) -> object:
        tried.append((down, right, round(angle, 6)))
        return pixels

    attack._perturb = note
    attack.generate(spot(15, 15).numpy())
    assert len(tried) == len(set(tried)) == len(rivals.art_poses()) == 155
    assert {down for down, _, _ in tried} == {0}
    assert {right for _, right, _ in tried} == {-3, -2, 0, 2, 3}


def test_art_takes_one_pose_for_all_images_and_leaves_what_another_pose_would_fool() -> None:
    rivals = rivals_with("art")
    images = torch.cat([spot(8, 16), spot(24, 16)])
    model = brighter_half()
    attack = rivals.art_attack(model, images)

    def swap(pixels: Any, _down: int, right: int, _angle: float) -> Any:
        """A stand-in for a pose: to the left it fools the first image, to the right the second."""
        fooled = {-3: 0, 3: 1}.get(right)
        return pixels if fooled is None else pixels[[1 - fooled, 1 - fooled]]

    attack._perturb = swap
    correct = model(torch.from_numpy(attack.generate(images.numpy()))).argmax(1) == torch.arange(2)
    assert correct.tolist() == [False, True]


def test_art_shifts_cuts_and_then_rotates() -> None:
    rivals = rivals_with("art")
    attack = rivals.art_attack(some_network(), spot(15, 15))
    right, turned = Pose.of(dx=3.0), Pose.of(angle=90.0)
    image = spot(29, 20)  # the shift pushes half of it over the border
    moved = torch.from_numpy(attack._perturb(image.numpy(), 0, 3, 90.0))
    torch.testing.assert_close(moved, warp(warp(image, right), turned), atol=1e-3, rtol=0)


def test_a_networks_step_is_held_against_its_arithmetic(tmp_path: Path) -> None:
    options = ["resnet8x0.25", "gresnet8x0.1", "--batch", "2", "--steps", "1", "--repeats", "1"]
    load("gpu_networks").main([*options, "--side", "8", "--json", str(tmp_path / "figures.json")])
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert len(rows) == 4
    by_name = {(row["network"], row["objective"]): row for row in rows}
    # Multiplications of a resnet8x0.25 on an image of 8 px: stem, then blocks of 4, 8 and 16.
    stem, linear = 64 * 9 * 3 * 4, 16 * 10
    inner = 64 * 9 * 2 * 4 * 4 + 16 * 9 * (4 * 8 + 8 * 8) + 4 * 9 * (8 * 16 + 16 * 16)
    # Backward as often as forward for weights, and for inputs but for those of the stem.
    trained = 2 * (3 * (inner + linear) + 2 * stem)
    searched = 2 * (inner + linear + stem)
    plain, penalised = (by_name["resnet8x0.25", name] for name in ("std*", "KL(rob, Wo-10)"))
    assert plain["gflop"] * 1e9 == pytest.approx(2 * trained)
    assert penalised["gflop"] * 1e9 == pytest.approx(2 * (2 * trained + 11 * searched))
    for row in rows:
        assert row["ratio"] == pytest.approx(row["step_ms"] * 790 / row["gflop"])


def test_group_convolutions_are_held_against_ordinary_ones(tmp_path: Path) -> None:
    options = ["--batch", "1", "--repeats", "1", "--depth", "8x0.1"]
    load("group_conv").main([*options, "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [cost["channels"] for cost in figures["costs"]] == [11, 23, 45]
    errors = {(error["network"], error["size"]): error for error in figures["errors"]}
    assert len(errors) == 8
    assert errors["gresnet8x0.1-pool-invariant", 32]["logits"] < 1e-12
    assert errors["gresnet8x0.1-invariant", 32]["logits"] > 1e-3
    assert errors["gresnet8x0.1", 33]["features"] < 1e-12


def test_what_a_disturbed_sweep_lost_doubled_or_changed_is_counted() -> None:
    cluster = load("cluster")
    recipes = [Recipe(seed=seed) for seed in range(3)]
    tasks = [Task(plan=recipe) for recipe in recipes]
    plain = [made_up_record(recipe, {"nat": 0.5}) for recipe in recipes]
    later = dataclasses.replace(plain[0], finished="2001-01-01T00:00:00+00:00", train_seconds=9.0)
    other = dataclasses.replace(plain[1], measured={"nat": 0.6})
    right = {"records": 3, "lost": 0, "twice": 0, "unequal": 0}
    assert cluster.judge(tasks, [later, *plain[1:]], plain) == right
    wrong = {"records": 3, "lost": 1, "twice": 1, "unequal": 1}
    assert cluster.judge(tasks, [later, plain[0], other], plain) == wrong


def test_one_change_is_the_only_one() -> None:
    one_change = load("one_change")
    asked = one_change.OneChange(method=(), change=(), device="cpu")
    recipes = [
        one_change.changed("cifar100", "std*", change, asked)
        for change in ("{}", '{"drops": [0.25, 0.5]}')
    ]
    assert recipes[0] == Recipe(objective="std*", data="cifar100", steps=120_000)
    assert recipes[0].differences(recipes[1]) == ["drops [0.25, 0.5] instead of [0.5, 0.75]"]


def test_of_two_networks_the_one_that_is_named_is_changed() -> None:
    one_change = load("one_change")
    asked = one_change.OneChange(method=(), change=(), seed=3, device="cpu")
    pair, other = (
        one_change.changed("svhn", "STN+(r) trick", change, asked)
        for change in ("{}", '{"classifier": {"objective": "std", "max_shift": 4}}')
    )
    assert pair.classifier == Recipe(objective="std*", data="svhn", seed=3)
    assert other == dataclasses.replace(
        pair, classifier=Recipe(objective="std", data="svhn", seed=3)
    )


def test_methods_are_compared_under_the_attacks_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = '{"steps": 2, "batch": 4, "data": "glyphs", "train_images": 16, "model": "convnet"}'
    asked = load("one_change").OneChange(
        method=("KL(rob, Wo-3)", "KL(rob, refine-20+rnd)"),
        change=(tiny,),
        attack=("grid-3x3x3", "refine-20"),
        runs=tmp_path / "runs",
        results=tmp_path / "results",
        test_images=4,
        device="cpu",
    )
    asked()
    measured = [record.measured for record in RecordFolder(tmp_path / "results").read()]
    assert [set(each) for each in measured] == [{"nat", "grid-3x3x3", "refine-20"}] * 2
    assert "refine-20" in capsys.readouterr().out


def test_networks_are_asked_of_other_spaces_and_once_alone(tmp_path: Path) -> None:
    tiny = '{"steps": 2, "batch": 4, "data": "glyphs", "train_images": 16, "model": "convnet"}'
    spaces = ("shift(1.5px) rotate(30)", "shift(3px) rotate(30)")
    asked = load("one_change").OneChange(
        method=("AT(rob, S-PGD)",),
        change=(tiny, tiny.replace("{", '{"space": "shift(1.5px) rotate(30)", ')),
        attack=("grid-3x3x3",),
        space=spaces,
        runs=tmp_path / "runs",
        results=tmp_path / "results",
        test_images=4,
        device="cpu",
    )
    asked()
    records = RecordFolder(tmp_path / "results").read()
    told = [(each.recipe["space"], each.evaluation["space"]) for each in records]
    assert sorted(told) == sorted((trained, searched) for trained in spaces for searched in spaces)
    assert not any(record.reported for record in records)
    asked()
    assert RecordFolder(tmp_path / "results").read() == records


@pytest.mark.parametrize(
    ("name", "options"),
    [("gpu_photographs", ("--device", "cpu")), ("cpu_photographs", ("--rounds", "1"))],
)
def test_what_photographs_cost_is_measured(
    name: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    try:
        with compiled_cheaply(side=32) as compiler:  # the real one is slow, and not what is tested
            load(name).main(["--tiny", *options, "--json", str(tmp_path / "figures.json")])
    finally:
        torch.set_num_threads(threads)
    assert bool(compiler.sizes) is (name == "gpu_photographs")
    assert "ratio" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    costs = figures.get("evaluations") or figures["costs"]
    assert len(costs) >= 4
    ways = [each["way"] for each in figures.get("steps", ())]
    assert ways in (["plain", "recorded", "compiled", "compiled, recorded"], [])
    # Natural, a grid of three, and the looks at the model before.
    assert all(each["passes"] >= 4 * 2 for each in costs)


def test_convolutions_are_timed_by_their_width(tmp_path: Path) -> None:
    load("gpu_convolutions").main(
        ["--tiny", "--device", "cpu", "--json", str(tmp_path / "figures.json")]
    )
    layers = json.loads((tmp_path / "figures.json").read_text())["layers"]
    assert [layer["channels"] for layer in layers] == [88, 96, 128, 184, 192, 256, 360, 384]
    assert all(min(layer[part] for part in ("forward", "by_input")) > 0 for layer in layers)
    # Two operations for each tap, channel in, channel out and pixel, of two images.
    assert layers[0]["floor"] == pytest.approx(2 * 2 * 32 * 32 * 88 * 88 * 9 / 790e6)


@pytest.mark.parametrize(
    "experiment", ["together", "sizes", "large", "large_ablation", "regularised"]
)
def test_what_is_combined_is_what_was_changed_alone(experiment: str) -> None:
    stronger = load("stronger")
    recipes = list(stronger.EXPERIMENTS[experiment]("cifar10").values())
    assert len(set(recipes)) == len(recipes)
    assert all(each.cosine for each in recipes)  # the most helpful change is in all of them


def test_means_of_seeds_are_one_and_those_of_mirror_images_one_for_each_seed() -> None:
    stronger = load("stronger")
    asked = ("mirror", "seeds", "seeds+mirror")
    jobs = stronger.Stronger(experiments=("antialiased:blur",), seeds=3, means=asked, device="cpu")
    plans = [plan for _, plan in jobs._plans()]
    runs, mirrored, (mean, both) = plans[:3], plans[3:6], plans[6:]
    assert [plan.members for plan in mirrored] == [(run,) for run in runs]
    assert mean.members == both.members == tuple(runs)
    assert [plan.answers for plan in (*mirrored, mean, both)] == [2, 2, 2, 1, 2]


def test_seeds_count_from_the_first_that_is_asked_for() -> None:
    stronger = load("stronger")
    named = {"experiments": ("antialiased:blur",), "seeds": 2, "first_seed": 1, "device": "cpu"}
    jobs = stronger.Stronger(**named, means=("seeds",))
    *runs, mean = [plan for _, plan in jobs._plans()]
    assert [run.seed for run in runs] == [1, 2]
    assert mean.members == tuple(runs)


def test_means_alone_are_those_that_are_measured_beside_the_runs() -> None:
    stronger = load("stronger")
    named = {"experiments": ("antialiased:blur",), "seeds": 2, "means": ("seeds",), "device": "cpu"}
    *_, mean = stronger.Stronger(**named)._plans()
    assert list(stronger.Stronger(**named, means_alone=True)._plans()) == [mean]


def test_a_mean_of_all_has_every_recipe_and_seed_that_was_named() -> None:
    stronger = load("stronger")
    named = ("antialiased:blur", "large:wideresnet16-8")
    asked = ("all", "all+mirror")
    jobs = stronger.Stronger(experiments=named, seeds=2, means=asked, device="cpu")
    *runs, mean, both = [plan for _, plan in jobs._plans()]
    assert sorted(run.model for run in runs) == ["resnet32-blur"] * 2 + ["wideresnet16-8"] * 2
    assert mean.members == both.members == tuple(sorted(runs, key=lambda run: run.model))
    assert [plan.answers for plan in (mean, both)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "millions"),
    [("mobilenet", 4.23), ("resnet50", 25.56), ("efficientnet_lite0", 4.65), ("vit_b16", 86.57)],
)
def test_networks_for_photographs_have_the_weights_that_are_published(
    name: str, millions: float
) -> None:
    with torch.device("meta"):
        network = getattr(load("photograph_networks"), name)()
        logits = network.eval()(torch.zeros(2, 3, 224, 224))
    assert logits.shape == (2, 1000)
    count = sum(weight.numel() for weight in network.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=0.01)


def test_both_heaps_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    load("heap").main(["--tiny", "--rounds", "1", "--json", str(tmp_path / "figures.json")])
    costs = json.loads((tmp_path / "figures.json").read_text())["costs"]
    assert [each["heap"] for each in costs] == ["as it is", "kept"]
    assert all(min(each["wall"], each["user"], each["memory"]) > 0 for each in costs)
