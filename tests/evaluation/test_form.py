"""Images go to a model in the dtype and the layout in which it takes them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from upright import Pose, Space, evaluate
from upright.identity import Identity
from upright.models import lay_channels_last
from upright.warp import Resampling, warp
from upright.window import Form

FORMS = [
    Form(torch.float32, channels_last=True),
    Form(torch.float16, channels_last=True),
    Form(torch.bfloat16),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("fill", ["black", "reflection", "#ff8000"])
@pytest.mark.parametrize("text", ["shift rotate", "brightness(0.3)", "rotate(9) gamma(0.5..2)"])
def test_a_warp_into_a_form_is_a_warp_brought_into_it(form: Form, fill: str, text: str) -> None:
    images = torch.rand(4, 3, 9, 12, generator=torch.Generator().manual_seed(0))
    space = Space.of(text).in_pixels(9, 12)
    for shape in ((5, 4), (5, 1), (4,)):
        pose = space.sample(*shape, generator=torch.Generator().manual_seed(1))
        moved = Resampling(fill, form=form)(images, pose)
        plain = warp(images, pose, fill=fill)
        assert moved.dtype == form.dtype
        assert moved.equal(plain.to(form.dtype))
        layout = torch.channels_last if form.channels_last else torch.contiguous_format
        assert moved.flatten(0, -4).is_contiguous(memory_format=layout)


class Watched(nn.Module):
    """Notes how images come."""

    def __init__(self, dtype: torch.dtype, layout: torch.memory_format) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 4, 3)
        self.to(dtype).to(memory_format=layout)  # type: ignore[call-overload]
        self.seen = list[tuple[torch.dtype, bool]]()
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.convolution(images).amax((2, 3))
        last = images.is_contiguous(memory_format=torch.channels_last)
        self.seen.append((images.dtype, last))
        return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_a_model_gets_images_as_its_weights_lie(
    dtype: torch.dtype, layout: torch.memory_format
) -> None:
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 4
    model, plain = Watched(dtype, layout), Watched(dtype, torch.contiguous_format)
    found = evaluate(model, (images, labels), attacks=["grid-3x3x3"])
    assert model.seen[-1] == (dtype, layout == torch.channels_last)

    def brought(images: Tensor) -> Tensor:
        logits: Tensor = plain(images.to(dtype).contiguous())
        return logits

    expected = evaluate(brought, (images, labels), attacks=["grid-3x3x3"])
    ours, theirs = found.attacks["grid-3x3x3"], expected.attacks["grid-3x3x3"]
    torch.testing.assert_close(ours.worst_loss, theirs.worst_loss, rtol=1e-2, atol=1e-2)


def test_a_form_takes_gradients_along() -> None:
    images = torch.rand(2, 3, 8, 8)
    angles = torch.tensor([3.0, 5.0], requires_grad=True)
    pose = Pose.of(angle=angles)
    Resampling(form=FORMS[0])(images, pose).square().sum().backward()
    slope = angles.grad
    assert slope is not None
    again = torch.tensor([3.0, 5.0], requires_grad=True)
    warp(images, Pose.of(angle=again)).square().sum().backward()
    torch.testing.assert_close(slope, again.grad)


def test_channels_last_changes_no_answer_and_no_digest() -> None:
    class Own(nn.Conv2d):
        """Looks at its weights as at one row, as those that standardise them do."""

        def forward(self, images: Tensor) -> Tensor:
            self.weight.view(len(self.weight), -1)
            return super().forward(images)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Own(4, 4, 3), nn.Flatten(), nn.Linear(64, 3)).double()
    images = torch.rand(2, 3, 8, 8).double()
    before, known = model(images), Identity.of(model)
    lay_channels_last(model)
    assert not model[0].weight.is_contiguous()
    torch.testing.assert_close(model(images), before)
    assert Identity.of(model) == known
