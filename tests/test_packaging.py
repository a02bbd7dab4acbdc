"""What the package says of itself: floors that are tested, a page for an index, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from upright import __version__

ROOT = Path(__file__).parent.parent
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
