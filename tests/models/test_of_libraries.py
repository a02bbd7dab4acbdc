"""Networks of timm and torchvision as networks of ``train``, held to the libraries themselves."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from every_network import KINDS, LIBRARIES
from other_libraries import need
from tiny_runs import Call, colours, save_as_npz
from upright.factories import from_module
from upright.models import build_network
from upright.models.enlarged import Enlarged
from upright.train import FreshLayer, Recipe, load_network, train
from upright.train.network import build, is_brought, is_own_code, own_code_digest
from upright.zoo import pack, unpack

IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def theirs(name: str, classes: int) -> tuple[nn.Module, Any, Any]:
    """The library's own network, and the mean and the std that it gives for it."""
    library, _, short = name.partition(":")
    if library == "timm":
        timm = need("timm")
        network = timm.create_model(short, pretrained=False, num_classes=classes)
        settings = timm.data.resolve_model_data_config(network)
        return network, settings["mean"], settings["std"]
    models = need("torchvision").models
    transforms = models.get_model_weights(short).DEFAULT.transforms()
    network = models.get_model(short, weights=None, num_classes=classes)
    return network, transforms.mean, transforms.std


def logits(network: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = network.eval()(images)
    return found


@pytest.mark.parametrize("name", LIBRARIES)
def test_it_is_the_librarys_network_with_its_own_normalisation(name: str) -> None:
    network, mean, std = theirs(name, 7)
    torch.manual_seed(0)
    network, _, _ = theirs(name, 7)
    torch.manual_seed(0)
    ours = build(name, classes=7, channels=3)
    shown = (IMAGES - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(logits(ours, IMAGES), logits(network, shown))
    assert not is_own_code(name)
    assert own_code_digest(name) == ""


@pytest.mark.filterwarnings("default::upright.train.FreshLayer")  # as for users
@pytest.mark.parametrize("name", LIBRARIES)
def test_it_is_fine_tuned_by_the_command_resumed_and_evaluated(
    upright: Call, name: str, tmp_path: Path
) -> None:
    save_as_npz(colours(24, side=64), Path("large.npz"))
    network, _, _ = theirs(name, 1000)
    torch.save(network.state_dict(), "theirs.pth")
    command = ("train", "std", "--model", name, "--pretrained", "theirs.pth", "--batch", 4)
    command += ("--data", "npz:large.npz", "--steps", 2, "--learning-rate", 0.01)
    command += ("--device", "cpu", "--out", "run", "--resume")
    code, _, err = upright(*command)
    assert code == 0
    said = "there are 3 classes, and 1000 in theirs.pth\n"
    assert re.fullmatch(rf"upright: warning: the last layer \(\S+\) starts fresh: {said}", err)
    code, _, err = upright(*command)
    assert (code, err) == (0, "")
    assert isinstance(load_network(tmp_path / "run").network, type(network))
    save_as_npz(colours(9, side=64), Path("others.npz"))
    code, out, err = upright("evaluate", "run", "--data", "npz:others.npz", "--attack", "wo-2")
    assert (code, err) == (0, "")
    assert "wo-2" in out


def test_the_first_weights_are_the_files_and_the_images_are_enlarged(tmp_path: Path) -> None:
    """A ViT takes images of one size alone; small ones go through ``enlargedN``."""
    timm = need("timm")
    network = timm.create_model("test_vit", pretrained=False, num_classes=9)
    side = network.pretrained_cfg["input_size"][-1]
    torch.save(network.state_dict(), tmp_path / "vit.pth")
    recipe = Recipe(
        objective="KL(rob, Wo-2; λ=1)",
        data="colours",
        model=f"enlarged{side}:timm:test_vit",
        pretrained=str(tmp_path / "vit.pth"),
        steps=1,
        batch=4,
        learning_rate=0.0,
        weight_decay=0.0,
    )
    with pytest.warns(
        FreshLayer, match=r"last layer \(head\) starts fresh: there are 3 classes, and 9"
    ):
        run = train(recipe, tmp_path / "run", data=colours())
    found = run.model.state_dict()
    for key, tensor in network.state_dict().items():
        if not key.startswith("head."):
            assert torch.equal(found[f"network.network.{key}"], tensor), key
    plain = replace(recipe, model="timm:test_vit")
    said = r"timm:test_vit does not take images of 3 x 8 x 8: .* patch .*; give others, as by --res"
    with pytest.raises(ValueError, match=said):
        train(plain, tmp_path / "plain", data=colours())


@pytest.mark.parametrize("name", [*LIBRARIES, "enlarged64:timm:resnet18", "own.py:make"])
def test_the_zoo_has_no_networks_of_libraries(name: str) -> None:
    assert is_brought(name)
    with pytest.raises(ValueError, match=f"{name} is not of this package"):
        unpack(pack(build_network("convnet0.25")), name, classes=10, channels=3)
    assert not any(map(is_brought, KINDS))


@pytest.mark.parametrize("name", LIBRARIES)
def test_images_of_other_channels_are_refused(name: str) -> None:
    need(name.partition(":")[0])
    with pytest.raises(ValueError, match=f"{name} takes images of 3 channels, but these have 1"):
        build(name, classes=3, channels=1)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_without_the_library_or_with_a_wrong_name_it_says_so(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"{library}:resnet18 needs {library}, which cannot"):
            build_network(f"{library}:resnet18")
    need(library)
    with pytest.raises(ValueError, match=r"'resnet19'; similar names are .*resnet18"):
        build_network(f"{library}:resnet19")


def test_modules_of_libraries_are_still_code_by_name() -> None:
    need("torchvision")
    name = "torchvision.models:squeezenet1_1"
    assert is_own_code(name)
    assert len(own_code_digest(name)) == 64
    made = from_module(*name.split(":")).make()
    assert isinstance(build(name, classes=4, channels=3), type(made))


# Enlarged images, which need no library.


def test_images_are_enlarged_bilinearly_with_their_edges_kept() -> None:
    shown: list[Tensor] = []

    class Noting(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            shown.append(images)
            return images.mean((2, 3))

    row = torch.tensor([0.0, 1.0, 0.5])
    Enlarged(Noting(), 7)(row.expand(1, 2, 3, 3))
    # The middle of pixel i of 7 lies at (i + 1/2) 3/7, those of the three at 1/2, 3/2 and 5/2.
    expected = np.interp((np.arange(7) + 0.5) * 3 / 7, [0.5, 1.5, 2.5], row)
    np.testing.assert_allclose(shown[0], np.broadcast_to(expected, (1, 2, 7, 7)), atol=1e-6)
    images = torch.rand(1, 2, 7, 7)
    Enlarged(Noting(), 7)(images)
    torch.testing.assert_close(shown[1], images)
    up = F.interpolate(images, scale_factor=2, mode="bilinear")
    Enlarged(Noting(), 14)(images)
    torch.testing.assert_close(shown[2], up)


@pytest.mark.parametrize(
    ("given", "shown"),
    [((8, 8), (8, 8)), ((9, 12), (9, 12)), ((4, 6), (8, 12)), ((9, 3), (24, 8)), ((7, 5), (11, 8))],
)
def test_proportions_are_kept_and_larger_images_stay(
    given: tuple[int, int], shown: tuple[int, int]
) -> None:
    assert Enlarged(nn.Identity(), 8)(torch.rand(1, 3, *given)).shape[-2:] == shown


@pytest.mark.parametrize("name", ["enlarged0:convnet", "enlarged9999:convnet"])
def test_sizes_that_nobody_means_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="enlarged to 1 to 4096 pixels"):
        build_network(name)


def test_what_is_enlarged_is_known_by_name_and_no_own_code() -> None:
    with pytest.raises(ValueError, match=r"and not 'own\.py:make'; .*Enlarged\(network, 8\)"):
        build("enlarged8:own.py:make", classes=3, channels=3)
