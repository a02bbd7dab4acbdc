"""What a recipe has, in the words that stand below the name of its method."""

from __future__ import annotations

__all__ = ["WORDS", "recipe_words"]

WORDS = {
    "average": "weights averaged ({:g})",
    "batch": "batches of {}",
    "center_crop": "images cropped to {} px",
    "cosine": "learning rate along a cosine",
    "cutout": "cutout of {} px",
    "decay": "learning rate times {:g} again and again",
    "drops": "learning rate dropped at {}",
    "flips": "images mirrored at random",
    "held_out": "on nine tenths of the training images",
    "interpolation": "{} interpolation",
    "jitter": "images changed at random by {}",
    "learning_rate": "learning rate {:g}",
    "max_shift": "images shifted at random by up to {} px",
    "mixup": "mixup of up to {:g}",
    "model": "network {}",
    "momentum": "momentum {:g}",
    "optimizer": "{}",
    "precision": "trained in {}",
    "pretrained": "starts from trained weights",
    "resize": "images resized to {} px",
    "smoothing": "labels smoothed by {:g}",
    "space": "searches {}",
    "steps": "{:,} steps",
    "teacher": "taught by {}",
    "teacher_share": "{:.0%} of each label by the teacher",
    "train_images": "on {:,} training images",
    "view": "view of {} px",
    "warmup": "{:,} steps of warm-up",
    "weight_decay": "weight decay {:g}",
}
_WITHOUT = {
    "drops": "learning rate not dropped",
    "flips": "images not mirrored",
    "max_shift": "images not shifted at random",
    "train_images": "on all training images",
}


def recipe_words(name: str, value: object) -> str:
    """Say what a field of a recipe is; what has no words here is told by its name.

    >>> recipe_words("weight_decay", 5e-4), recipe_words("flips", False), recipe_words("new", 3)
    ('weight decay 0.0005', 'images not mirrored', 'new 3')
    """
    shown = " and ".join(map(str, value)) if isinstance(value, list | tuple) else value
    if not value and name in _WITHOUT:
        return _WITHOUT[name]
    try:
        return WORDS[name].format(shown)
    except (KeyError, ValueError, TypeError):  # a record may hold what no recipe of ours has
        return f"{name.replace('_', ' ')} {shown}"
