"""The names of classes, by which images of some of them find their numbers.

`imagenet.txt` has those of ImageNet's 1000 classes in their usual order, the sorted WordNet ids,
with the words of WordNet 3.0, as `imagenet_synsets.txt` and `imagenet_synset_to_lemma.txt` of timm
1.0.30 have them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

from upright.data.images import LabelledImages
from upright.registry import similar_names

__all__ = ["ClassNames", "imagenet_classes", "read_classes"]

_WORDNET_ID = re.compile(r"n\d{8}(?!\d)")


@dataclass(frozen=True)
class ClassNames:
    """The names of a model's classes, in the order of its outputs.

    Several names of one class have commas between them; case, `_` and `-` make no difference, and
    of a name that begins with a WordNet id the id counts.

    >>> names = ClassNames(("tench, Tinca tinca, n01440764", "goldfish"))
    >>> names.number("Tinca_tinca"), names.number("n01440764-tench"), names.number("cat")
    (0, 0, None)
    """

    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int | None:
        """The number of a class; None where none is called so."""
        found = self._numbers(name)
        if len(found) > 1:
            several = " or ".join(f"{each} ({self.names[each]})" for each in found)
            raise ValueError(
                f"{name!r} may be class {several}; call it by a name that one of them alone has"
            )
        return found[0] if found else None

    @property
    def shown(self) -> tuple[str, ...]:
        """Short names: the first of each, or all of them where that is another's too."""
        first = [name.partition(",")[0].strip() for name in self.names]
        count = Counter(first)
        pairs = zip(first, self.names, strict=True)
        return tuple(short if count[short] == 1 else name for short, name in pairs)

    def unknown(self, data: LabelledImages) -> list[str]:
        """Those names that no class has, of classes that have images."""
        return [name for name in _present(data) if not self._numbers(name)]

    def nearest(self, name: str) -> str:
        """The name that may have been meant; empty where none is near."""
        return "".join(similar_names(_plain(name), self._parts))

    def label(self, data: LabelledImages) -> LabelledImages:
        """The same images, with the numbers that their classes have here."""
        if unknown := self.unknown(data):
            raise ValueError(f"no class of the model is called {', '.join(unknown[:3])}")
        numbers = {name: self.number(name) or 0 for name in _present(data)}
        for number, count in Counter(numbers.values()).items():
            if count > 1:
                same = [name for name, each in numbers.items() if each == number]
                raise ValueError(f"{' and '.join(same)} are one class; put their images together")
        table = torch.tensor([numbers.get(name, 0) for name in data.classes])
        return data.relabelled(table.to(data.labels.device)[data.labels], self.shown)

    def _numbers(self, name: str) -> list[int]:
        wanted = _plain(name)
        if match := _WORDNET_ID.match(wanted):
            wanted = match[0]
        if wanted in self._whole:
            return self._whole[wanted]
        # Of several names, a class has to have all.
        found = [{*self._parts.get(part.strip(), [])} for part in wanted.split(",")]
        return sorted(set.intersection(*found))

    @cached_property
    def _whole(self) -> dict[str, list[int]]:
        return _index([[_plain(name)] for name in self.names])

    @cached_property
    def _parts(self) -> dict[str, list[int]]:
        return _index([[_plain(part) for part in name.split(",")] for name in self.names])


@cache
def imagenet_classes() -> ClassNames:
    """ImageNet's 1000 classes, by WordNet id and by name."""
    lines = Path(__file__).with_name("imagenet.txt").read_text().splitlines()
    pairs = (line.split(" ", 1) for line in lines)
    return ClassNames(tuple(f"{words}, {number}" for number, words in pairs))


def read_classes(path: str | Path) -> ClassNames:
    """Read the names of a model's classes, in the order of its outputs.

    Args:
        path: of a text with one name a line; or of JSON: a list, or names by number, as a
            `config.json` of Hugging Face has them in `id2label`.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no names of classes can be read ({error})") from error
    try:
        names = _of_json(json.loads(text)) if text[:1] in ("{", "[") else text.splitlines()
    except (ValueError, TypeError, RecursionError, LookupError) as error:
        raise ValueError(
            f"{path}: no names of classes ({error}); write one a line, or as JSON a list or "
            '{"0": NAME, "1": NAME, ...}'
        ) from error
    if not names or not all(name.strip() for name in names):
        raise ValueError(f"{path}: a class has no name; write one a line, in the model's order")
    return ClassNames(tuple(name.strip() for name in names))


def _of_json(content: Any) -> list[str]:
    if isinstance(content, Mapping):
        content = content.get("id2label", content)
    if isinstance(content, Mapping):
        numbered = {int(number): name for number, name in content.items()}
        if missing := set(range(len(numbered))) - numbered.keys():
            raise ValueError(f"no {min(missing)}: they are numbered from 0, without gaps")
        content = [numbered[number] for number in range(len(numbered))]
    # Some give the WordNet id and a word of each.
    return [name if isinstance(name, str) else ", ".join(name) for name in content]


def _present(data: LabelledImages) -> list[str]:
    """The names of the classes that have images: a folder may have empty ones."""
    return [data.classes[label] for label in data.labels.unique().tolist()]


def _index(names: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, own in enumerate(names):
        for name in dict.fromkeys(own):
            found.setdefault(name, []).append(number)
    return found


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_-]", " ", name).casefold().split())
