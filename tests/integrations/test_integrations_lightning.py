"""The callback against ``evaluate`` on the module that it saw, and as Lightning's own would do."""

from __future__ import annotations

import copy
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from bar_images import bars, trained_network
from rank_pool import RankPool
from rigid_spaces import rigid
from upright import Normalised, evaluate
from upright.integrations.measure import without_shares
from upright.ranks import Ranks

pl = pytest.importorskip("pytorch_lightning")

from upright.integrations.lightning import WorstCaseAccuracy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning's own

DATA, OTHERS = bars(40, seed=2), bars(30, seed=7)
MANY = bars(1025, seed=8)  # three chunks for two devices; see evaluation/stream.py
SPACE = rigid(1, 15)
ATTACKS = ["wo-2", "grid-2x2x3"]


class Bars(pl.LightningModule):  # type: ignore[misc, unused-ignore]
    """Goes on training the network, with dropout and batch norm that a trace would change."""

    def __init__(self) -> None:
        super().__init__()
        self.network = copy.deepcopy(trained_network()).train()
        self.network[1] = nn.Sequential(nn.BatchNorm2d(8).double(), nn.ReLU(), nn.Dropout())
        self.validated: list[Tensor] = []

    def forward(self, images: Tensor) -> Any:
        return {"logits": self.network(images)}

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        return F.cross_entropy(self(batch[0])["logits"], batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _index: int) -> None:
        self.validated.append(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Watch(pl.Callback):  # type: ignore[misc, unused-ignore]
    """Notes what is logged when a validation ends, beside what ``evaluate`` says then."""

    def __init__(self, data: Any = DATA, **options: Any) -> None:
        self.data, self.options = data, {"attacks": ATTACKS, "space": SPACE} | options
        self.logged: list[dict[str, float]] = []
        self.expected: list[dict[str, float]] = []

    def note(self, trainer: Any, module: Any) -> None:
        self.logged.append({name: value.item() for name, value in trainer.callback_metrics.items()})
        network = copy.deepcopy(module.network).eval()
        with torch.inference_mode(False):
            found = evaluate(network, self.data, **self.options)
        under = {f"worst/{name}": result.accuracy for name, result in found.attacks.items()}
        named = {"natural_accuracy": found.natural_accuracy} | under
        self.expected.append({n: torch.tensor(v).item() for n, v in named.items()})

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self.note(trainer, module)


def loader(data: tuple[Tensor, Tensor], **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data), batch_size=16, **options)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def fit(
    folder: Path, *callbacks: Any, module: Any = None, validation: Any = None, **options: Any
) -> Any:
    trainer = pl.Trainer(
        **{
            "max_epochs": 2,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
            "callbacks": list(callbacks),
        }
        | options
    )
    held = loader(DATA) if validation is None else validation or None
    trainer.fit(module or Bars(), loader(OTHERS, shuffle=True), held)
    return trainer


def test_after_each_validation_it_logs_what_evaluate_gives(tmp_path: Path) -> None:
    watch = Watch()
    fit(tmp_path, WorstCaseAccuracy(ATTACKS, space=SPACE), watch)
    assert watch.logged == watch.expected
    assert len(watch.logged) == 2
    assert watch.logged[0] != watch.logged[1]
    assert watch.logged[0]["worst/wo-2"] < watch.logged[0]["natural_accuracy"]


def test_training_goes_on_as_it_would_without_it(tmp_path: Path) -> None:
    ends = []
    for callbacks in ([], [WorstCaseAccuracy(["s-pgd", "wo-2"], space=SPACE)]):
        torch.manual_seed(1)
        module = Bars()
        fit(tmp_path, *callbacks, module=module)
        ends.append((module.state_dict(), [part.training for part in module.modules()]))
    (alone, modes), (watched, watched_modes) = ends
    assert all(torch.equal(alone[name], watched[name]) for name in alone)
    assert modes == watched_modes


def test_checkpoints_and_early_stopping_can_monitor_it(tmp_path: Path) -> None:
    watch, name = Watch(), "worst/wo-2"
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor=name, mode="max", save_top_k=1)
    stop = pl.callbacks.EarlyStopping(name, mode="max", patience=1, min_delta=1.0)
    worst = WorstCaseAccuracy(["wo-2"], space=SPACE)
    options = {"enable_checkpointing": True, "max_epochs": 9}
    trainer = fit(tmp_path, best, stop, watch, worst, **options)
    assert trainer.current_epoch == 2  # no accuracy rises by 1: the first, and one of patience
    assert best.best_model_score == max(logged[name] for logged in watch.logged)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_it_asks_in_the_trainers_precision(precision: str) -> None:
    seen: list[torch.dtype] = []

    class Half(Bars):
        def __init__(self) -> None:
            super().__init__()
            self.float()

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.network(images)
            if not self.training:
                seen.append(logits.dtype)
            return logits

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            return F.cross_entropy(self(batch[0]).float(), batch[1])

    single = DATA[0].float(), DATA[1]
    worst = WorstCaseAccuracy(["wo-2"], space=SPACE, data=single)
    held, module = loader(single), Half()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[worst],
    )
    trainer.fit(module, held, held)
    assert set(seen) == {torch.bfloat16}
    network = module.network.eval()
    on = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed")

    def by_hand(images: Tensor) -> Tensor:
        with on:
            return network(images.to(next(network.parameters()).dtype)).float()

    found = evaluate(by_hand, single, attacks=["wo-2"], space=SPACE)
    logged = trainer.callback_metrics["worst/wo-2"]
    assert logged == torch.tensor(found.attacks["wo-2"].accuracy)


def test_what_lightning_leaves_out_is_left_out(tmp_path: Path) -> None:
    watch = Watch((DATA[0][:16], DATA[1][:16]))
    fit(tmp_path, WorstCaseAccuracy(ATTACKS, space=SPACE), watch, limit_val_batches=1)
    assert watch.logged == watch.expected


def test_normalised_images_and_a_limit(tmp_path: Path) -> None:
    mean, std = [0.4, 0.2], [0.3, 0.25]
    channels = [(DATA[0][:, i] - mean[i]) / std[i] for i in range(2)]

    class Usual(Bars):
        def forward(self, images: Tensor) -> Any:
            return {"logits": Normalised(self.network, [-4 / 3, -0.8], [1 / 0.3, 4])(images)}

    held, watch = loader((torch.stack(channels, 1), DATA[1])), Watch(limit=30)
    worst = WorstCaseAccuracy(ATTACKS, space=SPACE, mean=mean, std=std, limit=30)
    fit(tmp_path, worst, watch, module=Usual(), validation=held)
    assert watch.logged == watch.expected


def test_every_nth_epoch_and_without_validation(tmp_path: Path) -> None:
    counted = []

    class Count(WorstCaseAccuracy):
        def _log(self, trainer: Any, pl_module: Any) -> None:
            counted.append(trainer.current_epoch)
            super()._log(trainer, pl_module)

    worst = Count(["wo-2"], space=SPACE, every_n_epochs=2, data=DATA)
    trainer = fit(tmp_path, worst, validation=[], max_epochs=5)
    assert counted == [1, 3]
    assert set(trainer.callback_metrics) == {"natural_accuracy", "worst/wo-2"}


def test_validate_measures_its_own_data(tmp_path: Path) -> None:
    watch = Watch()
    worst = WorstCaseAccuracy(ATTACKS, space=SPACE, every_n_epochs=9)
    trainer = fit(tmp_path, worst, watch, max_epochs=1)
    assert watch.logged == [{}]
    watch.data = OTHERS
    (logged,) = trainer.validate(trainer.lightning_module, loader(OTHERS), verbose=False)
    assert logged == watch.expected[-1]


def test_what_cannot_work_is_said_before_the_first_epoch(tmp_path: Path) -> None:
    class NoEpoch(Bars):
        def training_step(self, *_: Any) -> Tensor:
            raise AssertionError

        def validation_step(self, _batch: Any, _index: int, dataloader_idx: int = 0) -> None:
            pass

    for held, message in (
        ([], "this fit has no validation: say with data="),
        ([loader(DATA), loader(OTHERS)], "there are 2 validation loaders: say with data="),
    ):
        with pytest.raises(ValueError, match=message):
            fit(tmp_path, WorstCaseAccuracy(), module=NoEpoch(), validation=held)
    with pytest.raises(ValueError, match="no attack is called 'wo'"):
        WorstCaseAccuracy(["wo"])
    with pytest.raises(ValueError, match="every_n_epochs must be at least 1"):
        WorstCaseAccuracy(every_n_epochs=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        WorstCaseAccuracy(colour="pink")


def test_a_loader_without_shares_has_all_images() -> None:
    """Lightning gives each of several devices a share, filled up with images that it repeats."""
    shares = torch.utils.data.DistributedSampler(TensorDataset(*DATA), num_replicas=3, rank=1)
    whole = without_shares(loader(DATA, sampler=shares), Ranks(1, 3))
    assert torch.equal(torch.cat([images for images, _ in whole]), DATA[0])

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError

    with pytest.raises(ValueError, match="several processes cannot share a data set without indic"):
        without_shares(DataLoader(Stream()), Ranks(1, 3))


def test_without_lightning_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "upright.integrations.lightning")
    with pytest.raises(ImportError, match="install the extra 'lightning'"):
        importlib.import_module("upright.integrations.lightning")


def fit_as_a_rank(ranks: Ranks, folder: Path) -> tuple[Any, list[int]]:
    """Train on one of two devices; give what was logged, and how many images the module saw."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    place = {"RANK": ranks.rank, "LOCAL_RANK": ranks.rank, "WORLD_SIZE": ranks.size}
    os.environ.update({name: str(value) for name, value in place.items()})
    watch, worst = Watch(MANY), WorstCaseAccuracy(ATTACKS, space=SPACE)
    environments = importlib.import_module("pytorch_lightning.plugins.environments")
    launched = [environments.TorchElasticEnvironment()]
    options = {"devices": ranks.size, "strategy": "ddp", "plugins": launched, "max_epochs": 1}
    torch.manual_seed(0)
    module = Bars()
    warnings.simplefilter("ignore")
    fit(folder, worst, watch, module=module, validation=loader(MANY), **options)
    return (watch.logged, watch.expected), [len(images) for images in module.validated]


@pytest.mark.slow  # two processes import Lightning
def test_devices_share_the_images_and_log_the_accuracy_of_all(tmp_path: Path) -> None:
    with RankPool(tmp_path) as pool:
        (one, seen), (other, _) = pool.run(fit_as_a_rank, tmp_path)
    assert one == other
    logged, expected = one
    assert logged == expected
    assert sum(seen[2:]) == 513  # Lightning itself shows each a half, one image twice
