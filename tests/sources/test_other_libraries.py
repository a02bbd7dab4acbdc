"""Networks of timm, torchvision and transformers, with random weights of files: nothing is fetched.

Each is held to the library itself: its own transforms, and the network called by hand.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import time
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from other_libraries import need
from upright import Normalised, Preprocess, load_model
from upright.data import ClassNames
from upright.identity import Identity
from upright.sources import Pretrained, hub, load_pretrained
from upright.sources.hugging_face import _unlike
from upright.train.weight_files import read_weights

IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
MEAN, STD = (0.5, 0.25, 0.0), (0.5, 0.25, 2.0)


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def logits(model: Any, images: Tensor = IMAGES) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(images)
    return found


def by_hand(network: nn.Module, mean: Any, std: Any) -> Tensor:
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (mean, std))
    return logits(network.eval(), (IMAGES - mean) / std)


class TestTimmOffline:
    """What does not need timm itself, with one that is made up."""

    @pytest.fixture(autouse=True)
    def _fake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def create_model(name: str, *, pretrained: bool) -> nn.Module:
            if name == "unreachable":
                logging.getLogger("huggingface_hub").warning("trying again")
                raise OSError("no route\nto host")
            network = nn.Flatten()
            sizes = {"input_size": (3, 224, 224), "crop_pct": 0.875}
            network.pretrained_cfg = {"mean": MEAN, "std": STD, **sizes}  # type: ignore[assignment]
            assert pretrained
            return network

        known = ["resnet18", "resnet34", "unreachable"]
        fake = SimpleNamespace(
            is_model=known.__contains__,
            list_models=lambda: known,
            create_model=create_model,
            data=SimpleNamespace(infer_imagenet_subset=lambda _: None),
        )
        monkeypatch.setitem(sys.modules, "timm", fake)  # type: ignore[arg-type]

    def test_images_are_normalised_as_the_network_wants_it(self) -> None:
        model = load_model("timm:resnet18")
        answer = model(torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1, 1))
        assert answer.tolist() == [[1.0, -1.0, 0.5]]
        assert isinstance(model, nn.Module)
        assert not model.training

    def test_its_data_configuration_says_how_large_images_are(self) -> None:
        usual = load_pretrained("timm:resnet18").preprocess
        assert (usual.resize, usual.center_crop) == (256, 224)

    def test_what_is_told_goes_before_what_timm_says(self) -> None:
        model = load_model("timm:resnet18", preprocess={"mean": 0, "std": 1})
        assert torch.equal(logits(model), IMAGES.flatten(1))

    def test_it_is_the_model_that_older_records_know(self) -> None:
        older = Normalised(nn.Flatten(), MEAN, STD)
        assert Identity.of(load_model("timm:resnet18")) == Identity.of(older)

    def test_mistakes_are_explained(self) -> None:
        with pytest.raises(ValueError, match="no model 'resnet19'; similar names are resnet18"):
            load_model("timm:resnet19")
        with pytest.raises(ValueError, match=r"no model ''; timm\.list_models\(\) gives all"):
            load_model("timm:")
        with pytest.raises(ValueError, match="could not load unreachable: no route to host; give"):
            load_model("timm:unreachable")

    def test_the_hub_does_not_tell_of_each_try(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(ValueError, match="no route"):
            load_model("timm:unreachable")
        assert caplog.records == []

    def test_a_hub_that_lets_one_wait_is_told_of_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "_PATIENCE_SECONDS", 0.01)
        warned = pytest.warns(hub.SlowHub, match="for vit, no folder here, from the hub .*; Ctrl-C")
        with warned as told, hub.quiet_hub("vit"):
            time.sleep(0.2)
        assert len(told) == 1
        monkeypatch.setattr(hub, "_PATIENCE_SECONDS", 0.2)
        with hub.quiet_hub("vit"):  # a warning would be an error
            pass
        time.sleep(0.4)


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("torchvision:resnet18", "torchvision", "torchvision"),
        ("hf:some/model", "transformers", "huggingface"),
    ],
)
def test_without_its_library_it_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name} needs {library}, .* the extra '{extra}'"):
        load_model(name)


def test_a_library_that_is_there_but_broken_is_not_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("upright.factories.importlib.import_module", broken)
    with pytest.raises(ValueError, match=r"nms does not exist.*different builds") as caught:
        load_model("timm:resnet18")
    assert "extra" not in str(caught.value)


class TestTimm:
    @pytest.mark.parametrize("classes", [1000, 7])
    def test_weights_of_a_file_and_the_data_configuration(
        self, tmp_path: Path, classes: int
    ) -> None:
        timm = need("timm")
        network = timm.create_model("test_resnet", pretrained=False, num_classes=classes)
        save_file(network.state_dict(), tmp_path / "net.safetensors")
        found = load_pretrained(f"timm:test_resnet@{tmp_path / 'net.safetensors'}")
        settings = timm.data.resolve_model_data_config(network)
        expected = by_hand(network, settings["mean"], settings["std"])
        torch.testing.assert_close(logits(found.model()), expected)
        evaluation = timm.data.create_transform(**settings, is_training=False).transforms
        sizes = {type(each).__name__: each.size for each in evaluation if hasattr(each, "size")}
        assert found.preprocess.resize == sizes["Resize"]
        assert found.preprocess.center_crop == sizes["CenterCrop"][0]
        assert len(found.classes) == (1000 if classes == 1000 else 0)

    def test_its_classes_are_known_by_wordnet_id_and_by_name(self, tmp_path: Path) -> None:
        timm = need("timm")
        network = timm.create_model("test_resnet", pretrained=False)
        torch.save(network.state_dict(), tmp_path / "net.pth")
        names = ClassNames(load_pretrained(f"timm:test_resnet@{tmp_path / 'net.pth'}").classes)
        info = timm.data.ImageNetInfo("imagenet-1k")
        for number in (0, 1, 500, 999):
            assert names.number(info.label_names()[number]) == number
            assert names.number(info.label_descriptions()[number]) == number


class TestTorchvision:
    @pytest.mark.parametrize("classes", [1000, 5])
    def test_weights_of_a_file_and_the_published_transforms(
        self, tmp_path: Path, classes: int
    ) -> None:
        models = need("torchvision").models
        network = models.get_model("squeezenet1_1", weights=None, num_classes=classes)
        torch.save({"state_dict": network.state_dict()}, tmp_path / "net.pt")
        found = load_pretrained(f"torchvision:squeezenet1_1@{tmp_path / 'net.pt'}")
        weights = models.get_model_weights("squeezenet1_1").DEFAULT
        transforms = weights.transforms()
        expected = by_hand(network, transforms.mean, transforms.std)
        torch.testing.assert_close(logits(found.model()), expected)
        assert [found.preprocess.resize] == transforms.resize_size
        assert [found.preprocess.center_crop] == transforms.crop_size
        assert found.classes == (tuple(weights.meta["categories"]) if classes == 1000 else ())

    def test_mistakes_are_explained(self, tmp_path: Path) -> None:
        models = need("torchvision").models
        with pytest.raises(
            ValueError, match="no classifier 'resnet19'; similar names are resnet18"
        ):
            load_model("torchvision:resnet19")
        with pytest.raises(ValueError, match="no classifier 'fcn_resnet50'"):
            load_model("torchvision:fcn_resnet50")
        network = models.get_model("squeezenet1_0", weights=None)
        torch.save(network.state_dict(), tmp_path / "net.pt")
        with pytest.raises(ValueError, match="weights of another network: ") as caught:
            load_model(f"torchvision:squeezenet1_1@{tmp_path / 'net.pt'}")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("aux", [True, False])
    @pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
    def test_weights_of_a_file_answer_as_published_ones(
        self, tmp_path: Path, name: str, aux: bool
    ) -> None:
        """Which are built otherwise than fresh ones: they normalise inside, too."""
        models = need("torchvision").models
        network = models.get_model(
            name, weights=None, num_classes=3, aux_logits=aux, init_weights=False
        )
        torch.save(network.state_dict(), tmp_path / "net.pt")
        found = load_pretrained(f"torchvision:{name}@{tmp_path / 'net.pt'}")
        images = torch.rand(1, 3, 96, 96)
        # What torchvision's transform_input is for: the numbers of (x - 0.5) / 0.5.
        expected = logits(network.eval(), (images - 0.5) / 0.5)
        torch.testing.assert_close(logits(found.model(), images), expected, atol=1e-4, rtol=1e-4)

    def test_old_names_in_files_of_densenets(self, tmp_path: Path) -> None:
        models = need("torchvision").models
        network = models.densenet121(weights=None, num_classes=3)
        old = {
            re.sub(r"(denselayer.*(?:norm|conv))([12])", r"\1.\2", key): value
            for key, value in network.state_dict().items()
            if not key.endswith("num_batches_tracked")
        }
        assert "features.denseblock1.denselayer1.norm.1.weight" in old
        torch.save(old, tmp_path / "net.pt")
        found = load_pretrained(f"torchvision:densenet121@{tmp_path / 'net.pt'}")
        torch.testing.assert_close(logits(found.network), logits(network.eval()))


PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 64, "width": 64},
    "image_mean": list(MEAN),
    "image_std": list(STD),
}


REFUSED = {"ImageGPTImageProcessor", "Siglip2ImageProcessor"}
"""They count colours and cut into patches."""


def _processors() -> list[str]:
    """Those of all image classifiers of transformers that can be made without more."""
    try:
        auto = importlib.import_module("transformers.models.auto")
    except Exception:
        return []
    classifiers = auto.modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    known = auto.image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES
    found: set[str] = set()
    for kind in classifiers:
        names = known.get(kind, ())
        names = names.values() if isinstance(names, dict) else names
        found |= {name for name in ([names] if isinstance(names, str) else names) if name}
    return sorted(found - {"TimmWrapperImageProcessor"})


class TestHuggingFace:
    def saved(self, folder: Path, processor: dict[str, Any], **config: Any) -> nn.Module:
        transformers = need("transformers")
        sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
        settings = transformers.ViTConfig(
            **sizes, num_hidden_layers=1, image_size=64, patch_size=16, **config
        )
        network: nn.Module = transformers.ViTForImageClassification(settings).eval()
        network.save_pretrained(folder)
        if processor:
            (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        return network

    def test_a_folder_with_its_processor(self, tmp_path: Path) -> None:
        names = {0: "cat", 1: "Egyptian cat, Mau"}
        network = self.saved(tmp_path, PROCESSOR, id2label=names)
        found = load_pretrained(f"hf:{tmp_path}")
        expected = by_hand(lambda_logits(network), MEAN, STD)
        torch.testing.assert_close(logits(found.model()), expected)
        assert found.classes == ("cat", "Egyptian cat, Mau")
        assert (found.preprocess.resize, found.preprocess.center_crop) == (64, 64)
        assert not any(part.training for part in found.network.modules())  # type: ignore[attr-defined]

    def test_what_its_processor_makes_of_an_image_is_what_the_network_is_shown(
        self, tmp_path: Path
    ) -> None:
        self.saved(tmp_path, PROCESSOR, num_labels=3)
        processor = need("transformers").AutoImageProcessor.from_pretrained(tmp_path)
        pixels = (IMAGES[0] * 255).byte()
        shown = torch.as_tensor(
            processor(pixels.permute(1, 2, 0).numpy(), return_tensors="pt")["pixel_values"]
        )
        around = Preprocess.of(processor).around(nn.Identity())
        torch.testing.assert_close(logits(around, pixels[None] / 255), shown, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("kind", _processors())
    def test_every_processor_of_a_classifier_is_read_or_refused(self, kind: str) -> None:
        """Also its scale and crop: of a picture of noise any other place is another."""
        # By default, the crop of MobileViT's is larger than the picture.
        settings = {"size": {"shortest_edge": 288}} if kind.startswith("MobileViT") else {}
        processor = getattr(need("transformers"), kind)(**settings)
        usual = Preprocess.of(processor)
        if kind.removesuffix("Pil") in REFUSED:
            assert _unlike(processor, usual)
            return
        assert _unlike(processor, usual) == ""
        if usual.center_crop is None:
            assert kind.startswith("Donut")  # which makes no squares
            return
        side, crop = usual.resize or 0, usual.center_crop
        noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
        shown = processor(Image.fromarray(noise), return_tensors="pt")["pixel_values"]
        own = usual.around(nn.Identity())(torch.from_numpy(noise).permute(2, 0, 1)[None] / 255)
        left = (side - crop) // 2
        crops = (own[..., at : at + crop, at : at + crop] for at in (left, left + 1))  # if odd
        off = [(each - shown).abs().max() for each in crops if each.shape == shown.shape]
        assert min(off) < 1.5 / 255 / min(usual.std or ())

    def test_a_processor_that_does_more_than_it_says_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.saved(tmp_path, PROCESSOR, num_labels=3)
        kind = type(need("transformers").AutoImageProcessor.from_pretrained(tmp_path))
        process = kind.preprocess

        def other(self: Any, *args: Any, **options: Any) -> Any:
            made = process(self, *args, **options)
            return {"pixel_values": made["pixel_values"] * 1.1}

        monkeypatch.setattr(kind, "preprocess", other)
        with pytest.raises(ValueError, match=r"does more to images than it says; write a Python"):
            load_model(f"hf:{tmp_path}")

    def test_a_network_of_grey_images(self, tmp_path: Path) -> None:
        grey = PROCESSOR | {"image_mean": [0.5], "image_std": [0.25]}
        network = self.saved(tmp_path, grey, num_labels=3, num_channels=1)
        found = load_model(f"hf:{tmp_path}")
        expected = logits(lambda_logits(network), (IMAGES[:, :1] - 0.5) / 0.25)
        torch.testing.assert_close(logits(found, IMAGES[:, :1]), expected)

    def test_blue_first_and_not_normalised_as_mobilevit(self, tmp_path: Path) -> None:
        """Its file has a mean and a std, by which it does not normalise."""
        processor = need("transformers").MobileViTImageProcessor(
            size={"shortest_edge": 72}, crop_size={"height": 64, "width": 64}
        )
        processor.save_pretrained(tmp_path)
        expected = Preprocess(mean=(0.0,), std=(1.0,), channels="bgr", resize=72, center_crop=64)
        assert Preprocess.of(processor) == expected
        assert Preprocess.of(tmp_path / "preprocessor_config.json") == expected

    def test_one_that_is_wrapped_from_timm(self, tmp_path: Path) -> None:
        need("timm")
        transformers = need("transformers")
        numbers = {"mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.95}
        config = transformers.TimmWrapperConfig(
            architecture="test_resnet",
            num_labels=10,
            pretrained_cfg={"input_size": [3, 160, 160], "interpolation": "bicubic", **numbers},
        )
        network = transformers.TimmWrapperForImageClassification(config).eval()
        network.save_pretrained(tmp_path)
        found = load_pretrained(f"hf:{tmp_path}")
        assert found.preprocess == Preprocess(
            mean=(0.5,) * 3, std=(0.25,) * 3, resize=168, center_crop=160
        )
        expected = by_hand(lambda_logits(network), [0.5] * 3, [0.25] * 3)
        torch.testing.assert_close(logits(found.model()), expected)

    def test_defaults_of_its_processor_count_and_outputs_without_names_have_none(
        self, tmp_path: Path
    ) -> None:
        short = {"image_processor_type": "ViTImageProcessor"}
        self.saved(tmp_path, short, num_labels=3)
        found = load_pretrained(f"hf:{tmp_path}")
        assert found.preprocess == Preprocess(
            mean=(0.5,) * 3, std=(0.5,) * 3, resize=224, center_crop=224
        )
        assert found.classes == ()

    def test_mistakes_are_explained_in_a_line(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"hf:\./nowhere: no such folder; give one that"):
            load_model("hf:./nowhere")
        self.saved(tmp_path, {}, num_labels=3)
        with pytest.raises(ValueError, match=r"has no image processor .*; save that beside") as one:
            load_model(f"hf:{tmp_path}")
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ValueError, match=r"could not load .* as an image classifier") as two:
            load_model(f"hf:{tmp_path}")
        assert "\n" not in f"{one.value}{two.value}"
        assert str(two.value).endswith("; give the folder of one, or its name on the hub")

    def test_images_of_another_size_are_told_what_to_do(self, tmp_path: Path) -> None:
        self.saved(tmp_path, PROCESSOR, num_labels=3)
        with pytest.raises(
            ValueError, match=r"32.*; bring images to .* --resize and --center-crop"
        ):
            logits(load_model(f"hf:{tmp_path}"), IMAGES[..., :32, :32])


def lambda_logits(network: nn.Module) -> nn.Module:
    class Logits(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = network(pixel_values=images).logits
            return found

    return Logits()


class TestWeightFiles:
    WEIGHTS = {"a.weight": torch.ones(2, 3)}  # noqa: RUF012

    @pytest.mark.parametrize("inside", [None, "state_dict", "model", "model_state_dict"])
    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_checkpoints_are_opened(self, tmp_path: Path, inside: str | None, prefix: str) -> None:
        weights = {prefix + name: value for name, value in self.WEIGHTS.items()}
        torch.save(weights if inside is None else {inside: weights, "epoch": 3}, tmp_path / "x.pth")
        (found,) = read_weights(str(tmp_path / "x.pth")).items()
        assert found[0] == "a.weight"
        assert torch.equal(found[1], self.WEIGHTS["a.weight"])

    def test_options_may_lie_beside_them_but_no_other_object(self, tmp_path: Path) -> None:
        beside = {"model": self.WEIGHTS, "args": Namespace(lr=0.1, data=["a"])}
        torch.save(beside, tmp_path / "x.pth")
        assert [*read_weights(str(tmp_path / "x.pth"))] == ["a.weight"]
        torch.save(beside | {"more": SimpleNamespace()}, tmp_path / "x.pth")
        with pytest.raises(ValueError, match=r"it holds a types\.SimpleNamespace, for which") as e:
            read_weights(str(tmp_path / "x.pth"))
        assert str(e.value).isprintable()

    def test_no_code_is_run_and_other_files_are_refused(self, tmp_path: Path) -> None:
        torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
        (tmp_path / "bad.safetensors").write_bytes(b"no weights")
        torch.save([1, 2], tmp_path / "list.pt")
        with zipfile.ZipFile(tmp_path / "script.pt", "w") as archive:
            archive.writestr("script/constants.pkl", b"")
            archive.writestr("script/code/model.py", b"")
        for name, said in [
            ("whole.pt", "cannot be read as weights"),
            ("bad.safetensors", "cannot be read as weights"),
            ("script.pt", r"is a model of torch\.jit, and not weights alone; save these, by torch"),
            ("list.pt", "holds no weights by name"),
            ("gone.pt", "no such file"),
        ]:
            with pytest.raises(ValueError, match=said) as caught:
                read_weights(str(tmp_path / name))
            assert "\n" not in str(caught.value)


def test_averaging_stands_around_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the fill of its poses would be the mean, and not black."""
    shown: list[Tensor] = []

    def network(images: Tensor) -> Tensor:
        shown.append(images)
        return images.flatten(1)[:, :3]

    monkeypatch.setattr(
        "upright.sources.averaged.load_pretrained", lambda *_, **__: Pretrained(network)
    )
    model = load_model("tta-grid-1x1x3:anything", preprocess={"mean": 0.25, "std": 0.5})
    logits(model, torch.ones(1, 1, 9, 9))
    assert {round(float(each.min()), 6) for each in shown} == {-0.5, 1.5}
