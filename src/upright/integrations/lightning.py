"""Worst-case accuracy while Lightning trains: a callback for ``pytorch_lightning`` and
``lightning.pytorch``, whichever of the two is there.

    trainer = Trainer(callbacks=[WorstCaseAccuracy(["wo-10"], limit=1000)])

logs ``natural_accuracy`` and ``worst/wo-10`` at the end of each validation, in time for
``EarlyStopping`` and ``ModelCheckpoint`` with ``monitor="worst/wo-10", mode="max"``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from upright.attacks import Attack
from upright.checks import check_at_least_1
from upright.evaluation.stream import Data
from upright.integrations.measure import Measurement, accuracies, without_shares
from upright.ranks import Ranks

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer

    class _Callback(Callback):
        """The callback of either package."""

else:
    _PACKAGES = {"pytorch_lightning": "pytorch_lightning", "lightning": "lightning.pytorch"}
    _FOUND = [module for package, module in _PACKAGES.items() if find_spec(package)]
    if not _FOUND:
        raise ImportError(
            "upright.integrations.lightning needs Lightning: install the extra 'lightning' of "
            "upright, or pytorch-lightning or lightning itself"
        )
    # Each package's trainer refuses the other's callbacks: with both there, this one is of both.
    _Callback = type("_Callback", tuple(import_module(name).Callback for name in _FOUND), {})

__all__ = ["WorstCaseAccuracy"]

# Each rank holds a part of the network, and all must ask it in step.
_SPLIT = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy", "XLAFSDPStrategy")


class WorstCaseAccuracy(_Callback):
    """Logs the accuracy under attacks as ``worst/ATTACK``, and ``natural_accuracy`` beside it.

    It asks the LightningModule as Lightning does: by its ``forward``, from images to logits, in
    evaluation mode and in the trainer's precision. The module, its gradients and the random
    numbers of the training stay as they would be without it. The poses are the same in every
    epoch, so that epochs can be compared, unless a ``generator`` is given.

    After each validation of the fit it measures the images of the validation loader, or after each
    epoch where there is none; and once in ``trainer.validate``. Lightning's sanity check is left
    alone. Of several devices each takes a part of the images, and all log the accuracy of all.

    Args:
        attacks: names or ``Attack`` objects, see ``evaluate``.
        every_n_epochs: measure in every n-th epoch only; what monitors it sees the last value.
        data: what to measure on, see ``evaluate``, the same on every device; unless told, the
            batches of the validation loader, which are pairs of images and labels.
        mean: of each channel, where the images come normalised; the module then gets them so, too.
        std: of each channel, where the images come normalised.
        options: others of ``evaluate``: ``space``, ``fill``, ``limit``, ``batch_size`` and so on.
    """

    def __init__(
        self,
        attacks: Sequence[str | Attack] = ("wo-10",),
        *,
        every_n_epochs: int = 1,
        data: Data | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_at_least_1(every_n_epochs=every_n_epochs)
        self.measurement = Measurement(attacks, mean, std, options)
        self.every_n_epochs, self.data = every_n_epochs, data

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        _ranks(trainer)
        if self.data is None and not trainer.enable_validation:
            raise ValueError(
                "this fit has no validation: say with data= what to measure the worst case on"
            )

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        if self.data is None:
            _validation_data(trainer, _ranks(trainer))  # now, not after the first epoch

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        alone = trainer.state.fn == "validate"
        if not trainer.sanity_checking and (alone or self._is_due(trainer)):
            self._log(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.enable_validation and self._is_due(trainer):
            self._log(trainer, pl_module)

    def _is_due(self, trainer: Trainer) -> bool:
        return (trainer.current_epoch + 1) % self.every_n_epochs == 0

    def _log(self, trainer: Trainer, pl_module: LightningModule) -> None:
        ranks, precision = _ranks(trainer), trainer.precision_plugin

        def answer(images: Tensor) -> Any:
            # Around the module alone: poses are drawn and images moved in the images' precision.
            with precision.forward_context():
                return pl_module(precision.convert_input(images))

        found = self.measurement.evaluate(
            pl_module,
            answer,
            _validation_data(trainer, ranks) if self.data is None else self.data,
            device=torch.device(pl_module.device),
            ranks=ranks,
        )
        for name, accuracy in accuracies(found, "worst/").items():
            # All ranks have the same number: their mean is that number, and Lightning is at ease.
            pl_module.log(name, accuracy, on_step=False, on_epoch=True, sync_dist=not ranks.alone)


def _ranks(trainer: Trainer) -> Ranks:
    kinds = {kind.__name__ for kind in type(trainer.strategy).__mro__}
    if trainer.world_size > 1 and kinds.intersection(_SPLIT):
        raise ValueError(
            f"{type(trainer.strategy).__name__} splits the network over processes, which must ask "
            "it in step: evaluate a checkpoint of it instead"
        )
    return Ranks(trainer.global_rank, trainer.world_size)


def _validation_data(trainer: Trainer, ranks: Ranks) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the batches that Lightning validates on now, those of all ranks."""
    fits = trainer.state.fn == "fit"
    loop = trainer.fit_loop.epoch_loop.val_loop if fits else trainer.validate_loop
    # Not trainer.val_dataloaders: in ``validate`` after ``fit`` those are still the fit's.
    loaders = [] if loop._combined_loader is None else loop._combined_loader.flattened
    if len(loaders) != 1 or not isinstance(loaders[0], DataLoader):
        raise ValueError(
            f"there are {len(loaders)} validation loaders: say with data= what to measure the "
            "worst case on"
        )
    return _first(without_shares(loaders[0], ranks), loop._max_batches[0] * ranks.size)


def _first(loader: DataLoader[Any], count: float) -> Iterator[tuple[Tensor, Tensor]]:
    # A generator: what a loader draws, it draws when it is asked for the first batch.
    yield from itertools.islice(loader, None if math.isinf(count) else int(count))
