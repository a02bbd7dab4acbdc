"""The pages of the reference, made while the site is built: one for each room of the package.

A room's page shows every name of its ``__all__``, and after it what its modules offer beside that.
So a new module has its place in the reference as soon as it exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["on_config", "on_files", "on_page_content", "pages"]

_PACKAGE = "upright"
_FOLDER = "reference/"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the nav, in place of the folder's name."""
    entries = [{title: path} for title, path in _titles().items()]
    config.nav = [
        {"Reference": entries} if entry == {"Reference": _FOLDER} else entry
        for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those that were read."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Keep the source code out of the search, where it would bury the rest."""
    source = '<details class="mkdocstrings-source"'
    return html.replace(source, f"{source} data-search-exclude")


def pages() -> dict[str, str]:
    """Give the text of each page, by its path."""
    package = _load()
    made = {f"{_FOLDER}index.md": _overview(package)}
    return made | {_path(room): _page(room) for room in _rooms(package)}


def _titles() -> dict[str, str]:
    rooms = {room.path: _path(room) for room in _rooms(_load())}
    return {_PACKAGE: f"{_FOLDER}index.md"} | rooms


def _load() -> griffe.Module:
    package = griffe.load(_PACKAGE, search_paths=["src"])
    assert isinstance(package, griffe.Module)
    return package


def _rooms(module: griffe.Module) -> list[griffe.Module]:
    return sorted(_modules(module), key=lambda room: room.name)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    """The public modules right below a module."""
    for member in module.members.values():
        if isinstance(member, griffe.Module) and not member.name.startswith("_"):
            yield member


def _path(room: griffe.Module) -> str:
    return f"{_FOLDER}{room.name}.md"


def _overview(package: griffe.Module) -> str:
    rooms = "\n".join(f"| [`{r.path}`]({r.name}.md) | {_summary(r)} |" for r in _rooms(package))
    names = "\n".join(
        f"| [`{name}`][{_definition(package, name)}] | {_summary(_member(package, name))} |"
        for name in _exports(package)
    )
    return (
        f"# `{_PACKAGE}`\n\n{_summary(package)}\n\n"
        f"## What `import {_PACKAGE}` gives\n\n| name | what it is |\n|---|---|\n{names}\n\n"
        f"`{_PACKAGE}.__version__` is the version.\n\n"
        f"## All rooms\n\n| module | what lives there |\n|---|---|\n{rooms}\n"
    )


def _page(room: griffe.Module) -> str:
    names = _exports(room)
    # mkdocstrings finds a module where a function has its name: that one is shown further down.
    clear = [name for name in names if not isinstance(room.members.get(name), griffe.Module)]
    blocks = [f"# `{room.path}`", _block(room, clear, level=2)]
    shown = {_definition(room, name) for name in clear}
    for module in _below(room):
        rest = [name for name in _exports(module) if _definition(module, name) not in shown]
        if rest:
            blocks += [f"## `{module.path}`", _block(module, rest, level=3)]
    return "\n\n".join(blocks) + "\n"


def _block(module: griffe.Module, names: list[str], *, level: int) -> str:
    """The text that stands for a module's docstring and some of its names."""
    options = {"heading_level": level, "members": names}
    block = f"::: {module.path}\n    options: {json.dumps(options)}"
    # In `A, B = 1, 2` nobody sees A and B without running it: these have a heading and no more.
    unseen = [name for name in names if name not in module.members]
    headings = (f'{"#" * level} `{name}` {{ id="{module.path}.{name}" }}' for name in unseen)
    return "\n\n".join((block, *headings))


def _below(room: griffe.Module) -> Iterator[griffe.Module]:
    for module in _rooms(room):
        yield module
        yield from _below(module)


def _exports(module: griffe.Module) -> list[str]:
    names = [str(name) for name in module.exports or []]
    return [name for name in names if not name.startswith("__")]


def _definition(module: griffe.Module, name: str) -> str:
    """The path under which a name was first defined, wherever it is exported from."""
    if name not in module.members:
        return f"{module.path}.{name}"
    member = _member(module, name)
    return member.target_path if isinstance(member, griffe.Alias) else member.path


def _member(module: griffe.Module, name: str) -> griffe.Object | griffe.Alias:
    """What a name stands for: where a function has the name of its module, the function."""
    member = module.members[name]
    inner = member.members.get(name) if isinstance(member, griffe.Module) else None
    return inner or member


def _summary(thing: griffe.Object | griffe.Alias) -> str:
    text = thing.docstring.value if thing.docstring else ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
