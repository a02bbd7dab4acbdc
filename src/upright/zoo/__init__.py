"""Trained networks that come with the package, or lie in folders of one's own.

    from upright import zoo

    zoo.names()
    network = zoo.load("cifar10/l2-rob-wo10")
    print(zoo.to_markdown(zoo.card("cifar10/l2-rob-wo10")))

An entry is two files, ``DATASET/NAME.safetensors`` with the weights and ``DATASET/NAME.json`` with
the card: how it was trained, and what these very weights were measured to do.
"""

from upright.zoo.card import Card
from upright.zoo.entry import Entry, entry_name, pack, take, unpack
from upright.zoo.shelf import card, find, folders, load, names
from upright.zoo.text import to_markdown

__all__ = [
    "Card",
    "Entry",
    "card",
    "entry_name",
    "find",
    "folders",
    "load",
    "names",
    "pack",
    "take",
    "to_markdown",
    "unpack",
]
