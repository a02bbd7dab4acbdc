"""Write the licences of all dependencies, and the terms of the shipped weights, as one page.

    python tools/licences.py > docs/licences.md

Dependencies are those of constraints.txt and of all extras in pyproject.toml; what they say of
themselves is read from the packages that are installed, which have to be all of them.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = """\
# Licences

`upright` itself is under the MIT licence. This page is made by `python tools/licences.py` from what
packages and cards say of themselves; the bill of materials of each release (`sbom.cdx.json`, in
CycloneDX) has the exact versions.

## Dependencies

What is needed in any case is in bold. The others are of extras, or needed by these.

| package | licence |
|---|---|
{packages}

With PyTorch for Linux come packages of NVIDIA (`nvidia-*`, `cuda-*`), most of them under NVIDIA's
own licences, which are not open source; a build of PyTorch without CUDA has none of them.

## Shipped weights

The weights are under the licence of the project, as far as that is ours to give: what the images
allow from which they were made, their makers say.

| weights | made from | terms of the images |
|---|---|---|
{weights}
"""


def needed() -> set[str]:
    """The packages that pyproject.toml asks for without any extra, by their plain names."""
    return {_plain(each) for each in _project()["dependencies"]}


def packages() -> list[str]:
    """All packages: pinned ones, and what extras ask for beyond them."""
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    extras = _project()["optional-dependencies"].values()
    asked = [*pins, *_project()["dependencies"], *(each for extra in extras for each in extra)]
    names = {_plain(line) for line in asked if not line.startswith("#")}
    return sorted(names - {"upright"})


def _project() -> dict[str, dict[str, list[str]]]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def _plain(requirement: str) -> str:
    (name,) = re.findall(r"^[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: str) -> str:
    """What a package says: an expression, one line of text, or else a classifier."""
    about = metadata(package)
    text = about.get("License-Expression") or about.get("License") or ""
    kinds = [kind for kind in about.get_all("Classifier", []) if kind.startswith("License ::")]
    if kinds and ("\n" in text or text in ("", "UNKNOWN")):
        text = " OR ".join(kind.rpartition(" :: ")[2] for kind in kinds)
    return text.partition("\n")[0].strip() or "not in its metadata"


def weights() -> Iterator[str]:
    entries = ROOT / "src" / "upright" / "zoo" / "entries"
    for file in sorted(entries.rglob("*.json"), key=lambda file: file.with_suffix("")):
        card = json.loads(file.read_text())
        name = file.relative_to(entries).with_suffix("")
        data = card["records"][0]["recipe"]["data"]
        yield f"| `{name}` | `{data}` | {card.get('data_terms') or 'not stated'} |"


def main() -> int:
    rows, missing = [], []
    for package in packages():
        name = f"**{package}**" if package in needed() else package
        try:
            rows.append(f"| {name} | {licence(package)} |")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        print(f"install these first: {' '.join(missing)}", file=sys.stderr)
        return 1
    print(PAGE.format(packages="\n".join(rows), weights="\n".join(weights())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
