"""The optimisers of recipes, and their state as tensors by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upright.train.recipe import Recipe

__all__ = ["load_optimizer", "make_optimizer", "optimizer_tensors"]

# The names that a checkpoint has for what an optimiser keeps of each parameter.
_KEPT = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {
        "steps": "step",
        "momentum": "exp_avg",
        "square": "exp_avg_sq",
        "largest_square": "max_exp_avg_sq",
    },
}


def make_optimizer(
    model: nn.Module, recipe: Recipe, device: torch.device
) -> torch.optim.SGD | torch.optim.Adam:
    """Make the recipe's optimiser: it decays matrices and kernels, not norms and biases.

    Its state is there from the start: a CUDA graph knows tensors by their place.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [parameter for parameter in parameters if (parameter.ndim > 1) == decayed],
            "weight_decay": recipe.weight_decay if decayed else 0.0,
            # A tensor of its own for each group: a graph reads it anew at every step.
            "lr": torch.tensor(recipe.learning_rate, device=device),
        }
        for decayed in (True, False)
    ]
    on_gpu = device.type == "cuda"
    optimizer: torch.optim.SGD | torch.optim.Adam
    if recipe.optimizer == "adam":
        optimizer = torch.optim.Adam(
            groups, betas=(recipe.momentum, 0.999), amsgrad=True, fused=True, capturable=on_gpu
        )
    else:
        optimizer = torch.optim.SGD(
            groups, momentum=recipe.momentum, fused=on_gpu, foreach=not on_gpu
        )
    for parameter in model.parameters():
        for key in _KEPT[recipe.optimizer].values():
            like = torch.zeros((), device=device) if key == "step" else parameter.detach()
            optimizer.state[parameter][key] = torch.zeros_like(like)
    return optimizer


def optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe
) -> dict[str, Tensor]:
    """Give what the optimiser keeps, under the names that a checkpoint has for it."""
    return {
        f"{kind}/{name}": optimizer.state[parameter][key].detach()
        for name, parameter in model.named_parameters()
        for kind, key in _KEPT[recipe.optimizer].items()
    }


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    tensors: dict[str, Tensor],
) -> None:
    """Copy what an optimiser kept into this one, in place."""
    for name, own in optimizer_tensors(model, optimizer, recipe).items():
        own.copy_(tensors[name])
