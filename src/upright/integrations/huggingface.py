"""Worst-case accuracy while the Trainer of Hugging Face's ``transformers`` trains: a callback.

    trainer = Trainer(model, arguments, ...)
    trainer.add_callback(WorstCaseAccuracy(trainer, ["wo-10"], mean=MEAN, std=STD, limit=1000))

adds ``eval_natural_accuracy`` and ``eval_worst_wo-10`` to the metrics of each evaluation, in time
for ``metric_for_best_model="eval_worst_wo-10"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from upright.attacks import Attack
from upright.evaluation.stream import Data
from upright.integrations.measure import Measurement, accuracies, without_shares
from upright.ranks import Ranks

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(
        "upright.integrations.huggingface needs transformers: install the extra 'huggingface' of "
        "upright, or transformers[torch] itself"
    ) from error

__all__ = ["WorstCaseAccuracy"]


class WorstCaseAccuracy(TrainerCallback):
    """Adds the accuracy under attacks to the metrics of each evaluation, and logs it.

    It measures the images of the evaluation, as the Trainer's collator gives them, with the
    Trainer's model in evaluation mode. The model, its gradients and the random numbers of the
    training stay as they would be without it. The poses are the same in every evaluation, so that
    they can be compared, unless a ``generator`` is given. Of several processes each takes a part of
    the images, and all have the accuracy of all.

    Add it before an ``EarlyStoppingCallback`` that looks at it: callbacks are called in order.

    Args:
        trainer: whose evaluations these are; its log is where the accuracies go.
        attacks: names or ``Attack`` objects, see ``evaluate``.
        data: what to measure on, see ``evaluate``, the same in every process; unless told, the
            data of the evaluation.
        mean: of each channel, where the images come normalised; the model then gets them so, too.
        std: of each channel. An image processor has both, as ``image_mean`` and ``image_std``.
        options: others of ``evaluate``: ``space``, ``fill``, ``limit``, ``batch_size`` and so on.
    """

    def __init__(
        self,
        trainer: Trainer,
        attacks: Sequence[str | Attack] = ("wo-10",),
        *,
        data: Data | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.trainer, self.data = trainer, data
        self.measurement = Measurement(attacks, mean, std, options)
        self.ranks = _ranks(trainer)

    def on_evaluate(self, *_: Any, **given: Any) -> None:
        metrics, model, data = given["metrics"], given["model"], self.data
        if data is None:
            names = getattr(model, "main_input_name", "pixel_values"), self.trainer.label_names[0]
            data = _pairs(without_shares(given["eval_dataloader"], self.ranks), *names)
        device = self.trainer.args.device
        found = self.measurement.evaluate(model, model, data, device=device, ranks=self.ranks)
        # How the evaluation is called: ``eval``, or ``eval_NAME`` of several data sets.
        called = next(key for key in metrics if key.endswith("_runtime")).removesuffix("runtime")
        named = {called + name: value for name, value in accuracies(found, "worst_").items()}
        metrics.update(named)
        self.trainer.log(dict(named))


def _ranks(trainer: Trainer) -> Ranks:
    ranks = Ranks(trainer.args.process_index, trainer.args.world_size)
    if not ranks.alone and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        raise ValueError(
            "FSDP and DeepSpeed split the network over processes, which must ask it in step: "
            "evaluate a checkpoint of it instead"
        )
    return ranks


def _pairs(
    loader: Iterable[Mapping[str, Tensor]], images: str, labels: str
) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader:
        if images not in batch or labels not in batch:
            raise ValueError(
                f"a batch has {', '.join(batch)}, but not both {images} and {labels}: say with "
                "data= what to measure the worst case on"
            )
        yield batch[images], batch[labels]
