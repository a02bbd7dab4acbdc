"""What the package says of itself: floors that are tested, a page for an index, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from upright import __version__
from upright.zoo.shelf import SHIPPED

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(extra: str) -> Iterator[Requirement]:
    """What an extra asks for, the extras within it included."""
    for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
        if requirement.name == "upright":
            for inner in requirement.extras:
                yield from requirements(inner)
        else:
            yield requirement


def test_the_oldest_versions_that_are_allowed_are_those_that_are_tested() -> None:
    lines = (ROOT / "constraints-floors.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    needed = [*map(Requirement, PROJECT["project"]["dependencies"]), *requirements("dev")]
    assert len(needed) > 20
    for requirement in needed:
        (floor,) = requirement.specifier
        release = Version(floor.version).release
        assert floor.operator == ">=", requirement
        # scipy 1.11 has a 1.11.1 and no 1.11.0 that is still offered.
        assert Version(pins[requirement.name]).release[: len(release)] == release, requirement


def pinned(file: Path) -> dict[str, str]:
    """Versions by name, of a list of pins or of hashed pins."""
    found = re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_hashed_lists_have_the_versions_of_the_constraints() -> None:
    constraints = pinned(ROOT / "constraints.txt")
    runtime = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    for name, needed in {"runtime": runtime, "dev": [*runtime, *requirements("dev")]}.items():
        locked = pinned(ROOT / "requirements" / f"{name}.txt")
        assert {canonicalize_name(each.name) for each in needed} <= set(locked)
        # Beyond the constraints: what comes with PyTorch for GPUs, or on other systems only.
        differing = {each for each in locked if constraints.get(each, locked[each]) != locked[each]}
        assert differing == set()


@pytest.mark.parametrize("name", ["runtime", "dev", "release"])
def test_every_line_of_a_hashed_list_has_a_hash(name: str) -> None:
    """As pip wants it: a single package without one, and it would install none."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    packages = re.split(r"(?m)^(?=[\w])", text)[1:]
    assert len(packages) > 20
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", each) for each in packages)


def test_what_builds_the_package_is_hashed() -> None:
    locked = pinned(ROOT / "requirements" / "release.txt")
    for needed in map(Requirement, PROJECT["build-system"]["requires"]):
        assert locked[canonicalize_name(needed.name)] in needed.specifier


def test_licences_of_all_dependencies_and_weights_are_listed() -> None:
    page = (ROOT / "docs" / "licences.md").read_text()
    listed = set(re.findall(r"^\| \**([\w.-]+)\** \| \S", page, re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    names = {canonicalize_name(Requirement(each).name) for each in asked} - {"upright"}
    assert names | set(pinned(ROOT / "constraints.txt")) <= listed
    cards = list(SHIPPED.rglob("*.json"))
    assert cards
    for card in cards:
        name = card.relative_to(SHIPPED).with_suffix("").as_posix()
        assert re.search(rf"^\| `{re.escape(name)}` \| `\w+` \| \S", page, re.MULTILINE), name


def test_a_package_index_is_shown_no_file_that_it_does_not_have() -> None:
    text = (ROOT / "README.md").read_text()
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert [part["path"] for part in hook["fragments"]] == ["README.md"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    assert "*What `make demo` shows" not in text  # a caption without its picture
    assert "\n!" not in text  # a picture whose link alone went
    assert "attacks, objectives" in " ".join(text.split())  # the words of a link stay


def test_the_changelog_and_the_citation_are_of_this_version() -> None:
    headings = re.findall(r"^## \[(.+)\](?: - (.+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == ("Unreleased", "")
    version, day = headings[1]
    citation = (ROOT / "CITATION.cff").read_text()
    assert version == __version__
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {date.fromisoformat(day)}\n" in citation


def test_make_explains_every_target() -> None:
    done = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    explained = re.findall(r"^make ([a-z-]+) +\S", done.stdout, re.MULTILINE)
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(phony.split())
