"""Draw the pictures of the pages.

    make demo                                  # trains the networks that are asked, once
    python docs/draw_images.py --runs runs/demo

Written to docs/images. Wrong is dark and right is light, so that the pictures can be read in grey.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
import tyro
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from upright import KL, L2, PAPER, Pose, Score, evaluate, parse_attack, warp
from upright.data import LabelledImages, load_data
from upright.penalties import Penalty
from upright.train import RunDirectory, load_network

EXTEND = Path(__file__).parent.parent / "examples" / "extend"
sys.path.insert(0, str(EXTEND))

RIGHT, WRONG, EDGE = "#9ecae1", "#b30000", "#08519c"


def main(
    runs: Path = Path("runs/demo"), out: Path = Path("docs/images"), *, images: int = 40
) -> None:
    """Draw everything.

    Args:
        runs: where the demo has left its networks, the weak one first.
        out: the folder of the pictures.
        images: from so many, the one is chosen that shows most.
    """
    plt.rcParams |= {"font.size": 9, "svg.hashsalt": "upright", "axes.spines.right": False}
    plt.rcParams |= {"axes.spines.top": False}
    networks = {
        str(RunDirectory.open(path).recipe.objective): load_network(path)
        for path in (runs / "run-0", runs / "run-3")
    }
    data = load_data("glyphs", limit=images)
    chosen = one_that_tips(networks, data)
    image, label = data.as_float()[chosen : chosen + 1], int(data.labels[chosen])
    for strength, (name, network) in zip(("weak", "strong"), networks.items(), strict=True):
        draw_idea(name, network, image, label, out / f"idea-{strength}.png")
        draw_map(name, network, image, label, out / f"map-{strength}.svg")
    draw_attacks(next(iter(networks.values())), image, label, out / "attacks.svg")
    draw_penalties(out / "penalties.svg")
    draw_shifts(data.as_float(), out / "shifts.svg")
    draw_arrows(out / "arrows.png")


def one_that_tips(networks: dict[str, nn.Module], data: LabelledImages) -> int:
    """The image with most poses that fool the first network and not the second."""
    weak, strong = (
        evaluate(network, data, attacks=["grid-775"]).attacks["grid-775"].fooled
        for network in networks.values()
    )
    assert weak is not None
    assert strong is not None
    return int((weak.unpack().int() - 3 * strong.unpack().int()).sum(1).argmax())


def draw_idea(name: str, network: nn.Module, image: Tensor, label: int, path: Path) -> None:
    """One image in 21 poses, framed by whether the network is right about it."""
    shifts, angles = (-3.0, 0.0, 3.0), (-30.0, -20.0, -10.0, 0.0, 10.0, 20.0, 30.0)
    poses = Pose.of(
        dx=[dx for dx in shifts for _ in angles], angle=[a for _ in shifts for a in angles]
    )
    moved = warp(image.expand(len(poses), -1, -1, -1), poses)
    with torch.no_grad():
        answers = network(moved).argmax(1).tolist()
    figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
    for place, (picture, answer) in enumerate(zip(moved, answers, strict=True)):
        row, column = divmod(place, len(angles))
        _tile(axes, picture, column, row, answer, right=answer == label)
    axes.set_xlim(-0.55, len(angles) - 0.45)
    axes.set_ylim(len(shifts) - 0.45, -0.55)
    axes.set_xticks(range(len(angles)), [f"{angle:g}°" for angle in angles])
    axes.set_yticks(range(len(shifts)), [f"{dx:g} px" for dx in shifts])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    wrong = sum(answer != label for answer in answers)
    axes.set_title(f"{name}: wrong in {wrong} of {len(answers)} poses")
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _tile(
    axes: Axes, picture: Tensor, column: float, row: float, answer: int, *, right: bool
) -> None:
    """One small picture, with what the network says of it in its corner."""
    colour = RIGHT if right else WRONG
    extent = (column - 0.42, column + 0.42, row + 0.42, row - 0.42)
    axes.imshow(picture.permute(1, 2, 0).numpy(), extent=extent, interpolation="nearest")
    axes.add_patch(
        Rectangle(
            (column - 0.44, row - 0.44), 0.88, 0.88, fill=False, edgecolor=colour, linewidth=2.5
        )
    )
    axes.text(
        column + 0.4,
        row - 0.4,
        str(answer),
        ha="right",
        va="top",
        fontsize=8,
        color="black" if right else "white",
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.2},
    )


def draw_map(name: str, network: nn.Module, image: Tensor, label: int, path: Path) -> None:
    """Right and wrong over all 775 poses of the grid, and the worst of them."""
    found = evaluate(network, (image, torch.tensor([label])), attacks=["grid-775"])
    result = found.attacks["grid-775"]
    assert result.fooled is not None
    assert result.worst_pose is not None
    wrong = result.fooled.unpack()[0].reshape(25, 31).numpy()
    pose = result.worst_pose
    row = 5 * round(float(pose.dx) / 1.5 + 2) + round(float(pose.dy) / 1.5 + 2)
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    colours = ListedColormap(["#deebf7", WRONG])
    axes.imshow(wrong, cmap=colours, vmin=0, vmax=1, aspect="auto", extent=(-31, 31, 25, 0))
    axes.plot(float(pose.angle), row + 0.5, "x", color="black", markersize=8, markeredgewidth=2)
    for line in (5, 10, 15, 20):
        axes.axhline(line, color="white", linewidth=1.5)
    axes.set_title(f"{name}: {int(wrong.sum())} of 775 poses fool it")
    axes.set_xlabel("angle in degrees")
    axes.set_ylabel("dx in px; in each band,\ndy from −3 to 3 px")
    axes.set_yticks([2.5, 7.5, 12.5, 17.5, 22.5], ["−3", "−1.5", "0", "1.5", "3"])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_attacks(network: nn.Module, image: Tensor, label: int, path: Path) -> None:
    """Where attacks look: the poses that each tries for one image, over its loss at dy = 0."""
    import corners  # noqa: F401
    import hill_climb  # noqa: F401

    names = ("grid-5x1x31", "wo-10", "s-pgd", "corners", "hill-20")
    shape = (31, 1, 61)
    losses = _score(network, image, label)(PAPER.grid(shape)[:, None]).detach()
    landscape = losses.reshape(31, 61).T.numpy()
    figure, parts = plt.subplots(1, 5, figsize=(11, 2.6), sharey=True, layout="constrained")
    for axes, name in zip(parts, names, strict=True):
        tried: list[Pose] = []
        score = _score(network, image, label, tried)
        with torch.no_grad():
            parse_attack(name).search(score, PAPER, 1, generator=torch.Generator().manual_seed(3))
        axes.imshow(landscape, cmap="Blues", aspect="auto", extent=(-3, 3, 30, -30))
        asked = torch.cat([pose.values.detach().reshape(-1, 3) for pose in tried]).numpy()
        axes.scatter(
            asked[:, 0], asked[:, 2], s=14, color="#fdae6b", edgecolor="black", linewidth=0.6
        )
        axes.set_title(f"{name}: {len(asked)} passes")
        axes.set_xlabel("dx in px")
        axes.set_xlim(-3.3, 3.3)
        axes.set_ylim(33, -33)
    parts[0].set_ylabel("angle in degrees")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _score(network: nn.Module, image: Tensor, label: int, tried: list[Pose] | None = None) -> Score:
    """The cross-entropy of one image; the poses that are asked for are added to ``tried``."""

    def score(pose: Pose) -> Tensor:
        if tried is not None:
            tried.append(pose)
        with torch.enable_grad():
            moved = warp(image, pose)
            logits = network(moved.flatten(0, -4))
            labels = torch.full((len(logits),), label)
            losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        return losses.reshape(pose.shape)

    return score


def draw_penalties(path: Path) -> None:
    """What each penalty charges when logits move from one class to another."""
    from cosine import Cosine

    share = torch.linspace(0, 1, 101)[:, None]
    natural, other = torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([[0.0, 4.0, 0.0]])
    moved = (1 - share) * natural + share * other
    figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
    kinds: dict[str, tuple[Penalty, str]] = {
        "L2: squared distance / 4": (L2(), "-"),
        "KL of the softmaxes": (KL(), "--"),
        "COS: 1 − cosine": (Cosine(), ":"),
    }
    for name, (penalty, style) in kinds.items():
        axes.plot(
            share.flatten().numpy(), penalty(natural, moved).numpy(), style, color=EDGE, label=name
        )
    axes.set_xlabel("share of the way from logits (4, 0, 0) to (0, 4, 0)")
    axes.set_ylabel("penalty")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_shifts(images: Tensor, path: Path) -> None:
    """How far the logits of fresh networks move with the image, with and without the blur."""
    from blurnet import Blur, blurnet

    shifts = torch.arange(0, 3.1, 0.25)
    blurred, plain = [], []
    for seed in range(5):
        torch.manual_seed(seed)
        layers = list(blurnet().children())
        skipping = [Skip() if isinstance(layer, Blur) else layer for layer in layers]
        blurred.append(moves(nn.Sequential(*layers).eval(), images, shifts))
        plain.append(moves(nn.Sequential(*skipping).eval(), images, shifts))
    figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
    for name, lines, style in (("every second pixel", plain, "--"), ("blurnet", blurred, "-")):
        several = torch.stack(lines).numpy()
        axes.fill_between(shifts.numpy(), several.min(0), several.max(0), color=RIGHT, alpha=0.4)
        axes.plot(shifts.numpy(), several.mean(0), style, color=EDGE, label=name)
    axes.set_xlabel("shift of the image in px")
    axes.set_ylabel("change of the logits\n(their spread is 1)")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


class Skip(nn.Module):
    """Drops every second pixel without a look at it."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., ::2, ::2]


@torch.no_grad()
def moves(network: nn.Module, images: Tensor, shifts: Tensor) -> Tensor:
    """The mean change of a logit under each shift, relative to its spread over images."""
    logits: Tensor = network(images)
    changes = [(network(warp(images, Pose.of(dx=dx))) - logits).abs().mean() for dx in shifts]
    return torch.stack(changes) / logits.std(0).mean()


def draw_arrows(path: Path) -> None:
    """A contact sheet of the data set that the page adds."""
    from arrows import arrows

    data = arrows(20, seed=1)
    figure, parts = plt.subplots(2, 10, figsize=(9, 2.2), layout="constrained")
    for axes, image, label in zip(parts.flat, data.as_float(), data.labels, strict=True):
        axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(data.classes[int(label)], fontsize=8)
        axes.set_axis_off()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    tyro.cli(main)
