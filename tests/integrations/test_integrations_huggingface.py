"""The callback for Hugging Face's Trainer against ``evaluate`` on the model that it saw."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bar_images import bars, trained_network
from rigid_spaces import rigid
from upright import evaluate

transformers = pytest.importorskip("transformers", reason="the extra huggingface is not installed")
pytest.importorskip("accelerate", reason="the extra huggingface is not installed")

from upright.integrations.huggingface import WorstCaseAccuracy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers' own

DATA, OTHERS = bars(40, seed=2), bars(30, seed=7)
SPACE = rigid(1, 15)
ATTACKS = ["wo-2", "grid-2x2x3"]


class Bars(nn.Module):
    """Goes on training the network, with dropout and batch norm that a trace would change."""

    def __init__(self) -> None:
        super().__init__()
        self.network = copy.deepcopy(trained_network())
        self.network[1] = nn.Sequential(nn.BatchNorm2d(8).double(), nn.ReLU(), nn.Dropout())

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.network(pixel_values)
        loss = {} if labels is None else {"loss": F.cross_entropy(logits, labels)}
        return loss | {"logits": logits}


def rows(data: tuple[Tensor, Tensor]) -> list[dict[str, Tensor]]:
    return [{"pixel_values": x, "labels": y} for x, y in zip(*data, strict=True)]


class Watch(transformers.TrainerCallback):  # type: ignore[misc]
    """Notes the metrics of each evaluation, beside what ``evaluate`` says then."""

    def __init__(self, data: Any = DATA, **options: Any) -> None:
        self.data, self.options = data, {"attacks": ATTACKS, "space": SPACE} | options
        self.metrics: list[dict[str, float]] = []
        self.expected: list[dict[str, float]] = []

    def on_evaluate(self, *_: object, metrics: Any, model: Any, **__: object) -> None:
        self.metrics.append({n: v for n, v in metrics.items() if "worst" in n or "natural" in n})
        network = copy.deepcopy(model.network).eval()
        found = evaluate(network, self.data, **self.options)
        under = {f"eval_worst_{name}": result.accuracy for name, result in found.attacks.items()}
        self.expected.append({"eval_natural_accuracy": found.natural_accuracy} | under)


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def trainer_in(
    folder: Path, model: nn.Module | None = None, held: Any = None, **options: Any
) -> Any:
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "num_train_epochs": 2,
            "per_device_train_batch_size": 16,
            "per_device_eval_batch_size": 16,
            "learning_rate": 0.5,
            "optim": "sgd",
            "eval_strategy": "epoch",
            "save_strategy": "no",
            "use_cpu": True,
            "report_to": [],
            "disable_tqdm": True,
        }
        | options
    )
    return transformers.Trainer(
        model or Bars(), arguments, train_dataset=rows(OTHERS), eval_dataset=held or rows(DATA)
    )


def test_each_evaluation_has_what_evaluate_gives_and_logs_it(tmp_path: Path) -> None:
    trainer, watch = trainer_in(tmp_path), Watch()
    trainer.add_callback(WorstCaseAccuracy(trainer, ATTACKS, space=SPACE))
    trainer.add_callback(watch)
    trainer.train()
    assert watch.metrics == watch.expected
    assert len(watch.metrics) == 2
    assert watch.metrics[0] != watch.metrics[1]
    logged = [entry for entry in trainer.state.log_history if "eval_worst_wo-2" in entry]
    assert [{n: entry[n] for n in watch.expected[0]} for entry in logged] == watch.expected
    assert [entry["step"] for entry in logged] == [2, 4]
    assert trainer.evaluate().items() >= watch.expected[-1].items()


def test_training_goes_on_as_it_would_without_it(tmp_path: Path) -> None:
    ends = []
    for watched in (False, True):
        torch.manual_seed(1)
        trainer = trainer_in(tmp_path)
        if watched:
            worst = WorstCaseAccuracy(trainer, ["s-pgd", "wo-2"], space=SPACE)
            trainer.add_callback(worst)
        trainer.train()
        ends.append(trainer.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_best_model_and_early_stopping_can_go_by_it(tmp_path: Path) -> None:
    trainer = trainer_in(
        tmp_path,
        num_train_epochs=9,
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_worst_wo-2",
        greater_is_better=True,
    )
    watch = Watch()
    trainer.add_callback(WorstCaseAccuracy(trainer, ["wo-2"], space=SPACE))
    trainer.add_callback(transformers.EarlyStoppingCallback(1, early_stopping_threshold=1.0))
    trainer.add_callback(watch)
    trainer.train()
    assert trainer.state.epoch == 2  # no accuracy rises by 1: the first, and one of patience
    assert trainer.state.best_metric == max(found["eval_worst_wo-2"] for found in watch.metrics)


def test_normalised_images_and_a_limit(tmp_path: Path) -> None:
    mean, std = [0.4, 0.2], [0.3, 0.25]
    channels = [(DATA[0][:, i] - mean[i]) / std[i] for i in range(2)]

    class Usual(Bars):
        def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            back = torch.tensor(std).view(2, 1, 1) * pixel_values + torch.tensor(mean).view(2, 1, 1)
            return super().forward(back, labels)

    held, watch = rows((torch.stack(channels, 1), DATA[1])), Watch(limit=30)
    trainer = trainer_in(tmp_path, Usual(), held)
    worst = WorstCaseAccuracy(trainer, ATTACKS, space=SPACE, mean=mean, std=std, limit=30)
    trainer.add_callback(worst)
    trainer.add_callback(watch)
    trainer.evaluate()
    assert watch.metrics == watch.expected


def test_several_data_sets_are_measured_by_their_names(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, held={"first": rows(DATA), "second": rows(OTHERS)})
    trainer.add_callback(WorstCaseAccuracy(trainer, ["wo-2"], space=SPACE))
    metrics = trainer.evaluate()
    network = trainer.model.network.eval()
    for name, data in (("first", DATA), ("second", OTHERS)):
        found = evaluate(network, data, attacks=["wo-2"], space=SPACE).attacks["wo-2"]
        assert metrics[f"eval_{name}_worst_wo-2"] == found.accuracy


def test_a_model_of_the_hub_and_mixed_precision(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        image_size=12, patch_size=4, num_channels=2, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, num_labels=4,
    )  # fmt: skip
    images = F.pad(DATA[0], (0, 0, 1, 2)).float()
    data = images, DATA[1]
    model = transformers.ViTForImageClassification(config)
    trainer = trainer_in(tmp_path, model, rows(data), bf16=True)
    trainer.add_callback(WorstCaseAccuracy(trainer, ["wo-2"], space=SPACE))
    metrics = trainer.evaluate()

    def by_hand(images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = model(images).logits.float()
            return logits

    found = evaluate(by_hand, data, attacks=["wo-2"], space=SPACE)
    assert metrics["eval_worst_wo-2"] == found.attacks["wo-2"].accuracy


def test_batches_of_another_form_are_named(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path)
    trainer.model.main_input_name = "pictures"
    trainer.add_callback(WorstCaseAccuracy(trainer))
    with pytest.raises(ValueError, match="has pixel_values, labels, but not both pictures and lab"):
        trainer.evaluate()
    trainer.pop_callback(WorstCaseAccuracy)
    trainer.add_callback(WorstCaseAccuracy(trainer, ["wo-2"], data=DATA, space=SPACE))
    assert "eval_worst_wo-2" in trainer.evaluate()


def test_what_cannot_be_right_is_said_at_once(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path)
    with pytest.raises(ValueError, match="no attack is called 'wo'"):
        WorstCaseAccuracy(trainer, ["wo"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        WorstCaseAccuracy(trainer, colour="pink")


def test_without_transformers_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "upright.integrations.huggingface")
    with pytest.raises(ImportError, match="install the extra 'huggingface'"):
        importlib.import_module("upright.integrations.huggingface")
