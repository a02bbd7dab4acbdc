"""A network, its optimiser and one step of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upright.models import build_network
from upright.objective import LossTerms, RegularizedLoss
from upright.train.batches import Batches, seed_for
from upright.train.recipe import Recipe

__all__ = ["Learner"]


class Learner:
    """What a run changes as it goes: weights, buffers and momentum."""

    def __init__(
        self, recipe: Recipe, *, classes: int, channels: int, device: torch.device
    ) -> None:
        self.recipe = recipe
        torch.manual_seed(seed_for(recipe.seed, "weights", 0))
        self.model = build_network(recipe.model, classes=classes, channels=channels).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model.train()
        self.optimizer = make_optimizer(self.model, recipe)
        self.generator = torch.Generator(device)
        self.loss = RegularizedLoss(recipe.objective, recipe.space, generator=self.generator)
        self._forward = _InPrecision(self.model, recipe.precision)

    def step(self, step: int, batches: Batches) -> LossTerms:
        """Take one step; what is drawn in it depends on the recipe and the step alone."""
        seed = seed_for(self.recipe.seed, "step", step)
        self.generator.manual_seed(seed)
        torch.manual_seed(seed)  # for networks with dropout
        batch = batches.at(step, self.generator)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate_at(step)
        terms = self.loss(self._forward, batch.images, batch.labels)
        self.optimizer.zero_grad()
        terms.total.backward()
        self.optimizer.step()
        return terms  # type: ignore[no-any-return]

    def state(self) -> dict[str, Tensor]:
        """Give all that has to be kept, by name."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum/{name}"] = momentum
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state that was kept."""
        prefix = "model/"
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        self.model.load_state_dict(weights)
        for name, parameter in self.model.named_parameters():
            if f"momentum/{name}" in tensors:
                momentum = torch.empty_like(parameter).copy_(tensors[f"momentum/{name}"])
                self.optimizer.state[parameter]["momentum_buffer"] = momentum


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """Make SGD that decays matrices and kernels, and leaves norms and biases alone."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    others = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum)


class _InPrecision(nn.Module):
    """Runs the network, and nothing around it, in the recipe's precision."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model, self.half_precision = model, precision == "bfloat16"

    def forward(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.half_precision):
            return self.model(images)  # type: ignore[no-any-return]
