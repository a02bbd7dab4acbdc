"""What a model by name raises when it is asked: whose it is, what it raised, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from upright import evaluate, load_model, warp
from upright.checks import Model
from upright.factories import in_words, is_users_code
from upright.logits import ask
from upright.sources.blame import blaming

IMAGES = torch.zeros(1, 3, 4, 5)
NETS = """
def check(images):
    {}["k"]

def model(images):
    check(images)
"""


def blamed(model: Model, first: Tensor | None = None, *, name: str = "net.py:make") -> str:
    with pytest.raises(ValueError) as caught, blaming(name, first):  # noqa: PT011
        ask(model, IMAGES)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def stays(model: Model, error: type[BaseException]) -> BaseException:
    with pytest.raises(error) as caught, blaming("net.py:make", IMAGES):
        ask(model, IMAGES)
    assert "net.py" not in str(caught.value)
    return caught.value


def test_the_last_line_of_a_users_own_code_is_told_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_to_blame.py").write_text(NETS)
    (tmp_path / "net.py").write_text(
        "import nets_to_blame\ndef make(): return lambda images: nets_to_blame.model(images)\n"
    )
    monkeypatch.chdir(tmp_path)
    said = blamed(load_model("net.py:make"))
    assert said == "net.py:make raised KeyError: 'k' (nets_to_blame.py, line 3)"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("net.py:make", "line 2"),
        ("tta-10:net.py:make", "net.py, line 2"),
        ("mean:a.py:make,net.py:make", "net.py, line 2"),
        ("runs/net", "net.py, line 2"),
    ],
)
def test_the_file_is_told_where_the_name_does_not_say_it(
    tmp_path: Path, name: str, place: str
) -> None:
    text = "def model(images):\n    raise ValueError('no')\ndef make(): return model\n"
    (tmp_path / "net.py").write_text(text)
    model = load_model(f"{tmp_path / 'net.py'}:make")
    assert blamed(model, name=name) == f"{name} raised ValueError: no ({place})"


def test_a_network_of_torch_is_named_too() -> None:
    said = blamed(nn.Sequential(nn.Flatten(), nn.Linear(7, 2)))
    assert said.startswith("net.py:make raised RuntimeError: mat1 and mat2 shapes cannot be")


def test_an_image_about_which_it_fails_first_is_not_taken() -> None:
    said = blamed(nn.Sequential(nn.Flatten(), nn.Linear(7, 2)), IMAGES)
    assert said.startswith(
        "net.py:make does not take images of 3 x 4 x 5: asked about one, it raised RuntimeError: "
    )
    assert said.endswith("or, if it takes channels last, give --layout channels-last")


def test_what_a_model_asks_of_this_package_is_told_as_the_models() -> None:
    said = blamed(lambda images: warp(images, "nothing"))  # type: ignore[arg-type]
    assert re.fullmatch(r"net\.py:make raised \w+: .* \(test_blame\.py, line \d+\)", said)


def test_checks_of_this_package_stay_as_they_are() -> None:
    stays(lambda _: torch.zeros(3), ValueError)
    stays(nn.Conv2d(1, 2, 3), ValueError)  # other channels, which are explained
    with pytest.raises(ValueError, match=r"^ours$"), blaming("net.py:make", IMAGES):
        raise ValueError("ours")


def test_nobody_is_blamed_for_a_reader_that_has_left_or_an_interrupt() -> None:
    for error in (BrokenPipeError, KeyboardInterrupt):

        def model(_: Tensor, error: type[BaseException] = error) -> Tensor:
            raise error

        assert type(stays(model, error)) is error


def test_in_python_a_model_raises_what_it_raises() -> None:
    class NoneOfOursError(Exception):
        pass

    error = NoneOfOursError("mine")

    def model(_: Tensor) -> Tensor:
        raise error

    with pytest.raises(NoneOfOursError) as caught:
        evaluate(model, (IMAGES, torch.zeros(1, dtype=torch.long)), attacks=["rnd"])
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert error.__cause__ is None


def test_own_code_is_neither_pythons_nor_installed_nor_ours(tmp_path: Path) -> None:
    own, installed = tmp_path / "net.py", tmp_path / "site-packages" / "net.py"
    for file in (own, installed):
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    assert is_users_code(str(own))
    assert is_users_code(__file__)
    for file in (installed, torch.__file__, re.__file__, evaluate.__code__.co_filename, "<string>"):
        assert not is_users_code(str(file))


def test_a_named_file_is_the_users_wherever_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "net.py"
    file.parent.mkdir()
    file.write_text("def make():\n    raise ValueError('no')\n")
    with pytest.raises(ValueError, match=r"net\.py:make raised ValueError: no \(line 2\)$"):
        load_model(f"{file}:make")
    assert in_words("x", KeyError("k")) == "KeyError: 'k'"  # raised nowhere
