"""The text of a space and the space give each other back; what is no such text is told so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from upright import PAPER, Space
from upright.families import FAMILIES, Axis, Chain, Family
from upright.families.chain import GRAMMAR

# --- texts that are right -------------------------------------------------------------------------


def sizes(axis: Axis) -> st.SearchStrategy[float]:
    """How far an axis may go one way: plain, tiny, huge, and with exponents."""
    if axis.unit == "factor":
        return st.one_of(st.just(0.0), st.floats(1e-9, 39), st.floats(1e-3, 2))
    most = {"shear_x": 44.0, "shear_y": 44.0, "tilt_x": 0.49, "tilt_y": 0.49}.get(axis.name, 1e15)
    whole = st.integers(0, int(min(most, 500))).map(float)
    return st.one_of(whole, st.floats(0, min(most, 100)), st.floats(0, most))


@st.composite
def limited(draw: Any, axis: Axis) -> Axis:
    """An axis with limits on both sides, on one, mirrored or not, in px or in per cent."""
    low, high = draw(sizes(axis)), draw(sizes(axis))
    low = draw(st.sampled_from([low, high, 0.0])) if axis.low else 0.0
    unit = draw(st.sampled_from(["px", "%"])) if axis.side else axis.unit
    if unit == "%":
        low, high = min(low, 1e9), min(high, 1e9)
    return Axis(axis.name, unit, -low, high, axis.side, axis.count, axis.period)


@st.composite
def families(draw: Any, name: str) -> Family:
    kind = FAMILIES[name]
    return kind([draw(limited(axis)) for axis in kind.axes])


@st.composite
def spaces(draw: Any) -> Space:
    names = draw(st.permutations(list(FAMILIES)))[: draw(st.integers(1, 5))]
    return Space(Chain(tuple(draw(families(name)) for name in names)))


@settings(max_examples=300)
@given(spaces())
def test_the_text_of_any_space_is_read_as_that_space(space: Space) -> None:
    text = str(space)
    again = Space.of(text)
    assert again == space
    assert hash(again) == hash(space)
    assert str(again) == text
    assert [(axis.low, axis.high) for axis in again.axes] == [
        (axis.low, axis.high) for axis in space.axes
    ]


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_any_factors_are_read_to_twelve_digits_and_written_as_they_are_read(
    one: float, other: float
) -> None:
    low, high = sorted((min(one, 1.0), max(other, 1.0)))
    space = Space.of(f"zoom({low!r}..{high!r})")
    ((found_low, found_high),) = space.limits
    assert (found_low, found_high) == pytest.approx((math.log(low), math.log(high)), abs=2e-11)
    assert Space.of(str(space)) == space


@given(st.floats(1e-6, 1e6))
def test_one_factor_is_for_both_ways_exactly_mirrored(factor: float) -> None:
    space = Space.of(f"zoom({factor!r})")
    ((low, high),) = space.limits
    assert low == -high
    assert Space.of(str(space)).limits == ((low, high),)
    assert space.grid((5,)).zoom[2] == 0


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("shift(3px) rotate(30)", ((-3, 3), (-3, 3), (-30, 30))),
        ("shift rotate", ((-3, 3), (-3, 3), (-30, 30))),
        ("SHIFT( 3 PX ,4px )\tRotate (30deg)", ((-3, 3), (-4, 4), (-30, 30))),
        ("shift(-1..2px, -3px..4)", ((-1, 2), (-3, 4))),
        ("rotate(-1e1..2.5E+1)", ((-10, 25),)),
        ("rotate(-.5...5)", ((-0.5, 0.5),)),
        ("rotate(+30°)", ((-30, 30),)),
        ("blur(2)", ((0, 2),)),
        ("blur(0..0.5px)", ((0, 0.5),)),
        ("brightness(-0.1..0)", ((-0.1, 0),)),
        ("zoom(1x..2x)", ((0, math.log(2)),)),
        ("stretch(0.5..2, 1..1)", ((-math.log(2), math.log(2)), (0, 0))),
    ],
)
def test_texts_mean(text: str, limits: tuple[tuple[float, float], ...]) -> None:
    found = Space.of(text).limits
    for one, other in zip(found, limits, strict=True):
        assert one == pytest.approx(other, abs=1e-15)


def test_per_cent_are_of_the_width_and_the_height() -> None:
    space = Space.of("shift(-5%..10%, 20%) rotate(10)")
    assert space.in_pixels(height=50, width=200).limits == ((-10, 20), (-10, 10), (-10, 10))
    assert str(space) == "shift(-5..10%, 20%) rotate(10)"
    mixed = Space.of("shift(10%, 3px)")
    assert str(mixed) == "shift(10%, 3px)"
    assert mixed.in_pixels(height=50, width=200).limits == ((-20, 20), (-3, 3))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shift(3px) rotate(30)", "shift by at most 3 px, rotate by at most 30 degrees"),
        ("shift(10%, 5px)", "shift by at most 10 % of the image that is seen and at most 5 px"),
        ("rotate(-5..30)", "rotate by -5 to 30 degrees"),
        ("zoom(1.1)", "zoom by 0.9091 to 1.1 times"),
        ("blur(2px) brightness(0.2)", "blur by 0 to 2 px, brightness by at most 0.2"),
    ],
)
def test_in_words(text: str, words: str) -> None:
    assert Space.of(text).in_words() == words


def test_a_space_is_given_back_as_it_is() -> None:
    assert Space.of(PAPER) is PAPER
    with pytest.raises(ValueError, match=r"a space is a text such as 'shift\(3px\) .*, not a int"):
        Space.of(3)  # type: ignore[arg-type]


# --- texts that are wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a space without a family; name at least one"),
        (" \n", "a space without a family"),
        ("rotat(30)", "no family is called 'rotat' (nearest: rotate)"),
        ("schift(3px)", "nearest: shift"),
        ("zom", "nearest: zoom"),
        ("sheer(3)", "nearest: shear"),
        ("xyz", "no family is called 'xyz'; there are shift, rotate, zoom"),
        ("rotate(30", "'rotate(30' is not understood"),
        ("shift(3px)rotate(30)", "'shift(3px)rotate(30)' is not understood"),
        ("rotate(30))", "is not understood"),
        ("rotate((30))", "is not understood"),
        ("shift(3px), rotate(30)", "is not understood"),
        ("rotate()", "'' is no limit of angle: give a number"),
        ("rotate(thirty)", "'thirty' is no limit of angle"),
        ("rotate(30px)", "'30px' is no limit of angle: give a number, with degrees or deg or °"),
        ("rotate(10%)", "'10%' is no limit of angle"),
        ("blur(10%)", "'10%' is no limit of blur: give a number, with px behind it"),
        ("rotate(30..-30)", "'30..-30' is no limit of angle: the lower one comes first"),
        ("rotate(10..30)", "angle cannot go from 10 to 30: 0, which changes nothing, must lie"),
        ("rotate(-3)", "'-3' is no limit of angle: give a positive number"),
        ("blur(-1..1px)", "'-1..1px' is no limit of blur: it has one direction, from 0 on"),
        ("rotate(1..2..3)", "'1..2..3' is no limit of angle"),
        ("shift(1px..2%)", "'1px..2%' is no limit of dx"),
        ("zoom(0)", "'0' is no limit of zoom"),
        ("zoom(-1..2)", "'-1' is no limit of zoom"),
        ("zoom(1.5..2)", "zoom cannot go from 1.5 to 2: 1, which changes nothing, must lie"),
        ("zoom(1e400)", "'1e400' is no limit of zoom"),
        ("zoom(1e305)", "zoom cannot go from 1e-305 to 1e+305: that is too far"),
        ("shift(1e16px)", "dx cannot go from -1e+16 to 1e+16: that is too far"),
        ("rotate(nan)", "'nan' is no limit of angle"),
        ("rotate(inf)", "'inf' is no limit of angle"),
        ("rotate(1, 2)", "rotate has 1 axes (angle): give one limit for all, or one for each"),
        ("shift(1px, 2px, 3px)", "shift has 2 axes (dx, dy)"),
        ("shift rotate shift", "shift stands twice; name each family once"),
        ("rotate(3\n0)", "is no limit of angle"),
    ],
)
def test_a_wrong_text_is_told_in_one_line_with_the_grammar(text: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is looked at below
        Space.of(text)
    message = str(caught.value)
    assert told in message
    assert message.endswith(GRAMMAR)
    assert len(message.splitlines()) == 1


pieces = st.one_of(
    st.sampled_from([*FAMILIES, "rotat", "(", ")", "..", ",", "px", "%", "°", "x", "deg", " "]),
    st.floats().map(repr),
    st.integers().map(str),
    st.text(max_size=3),
)


@settings(max_examples=500)
@given(st.lists(pieces, max_size=12).map("".join))
def test_any_text_is_a_space_or_a_value_error_of_one_line(text: str) -> None:
    told, space = "", PAPER
    try:
        space = Space.of(text)
    except ValueError as error:
        told = str(error)
    assert not told or told.endswith(GRAMMAR)
    assert len(told.splitlines()) <= 1
    assert Space.of(str(space)) == space
    assert all(math.isfinite(axis.reach) for axis in space.axes)


# --- what a text stands for -----------------------------------------------------------------------


@given(spaces(), st.integers(0, 2**31))
def test_draws_and_projections_and_grids_lie_in_any_box(space: Space, seed: int) -> None:
    space = space.in_pixels(height=200, width=300)
    generator = torch.Generator().manual_seed(seed)
    assert space.contains(space.sample(20, generator=generator)).all()
    far = space.zeros(2)
    far.values[0], far.values[1] = 1e20, -1e20
    ends = space.project(far)
    assert space.contains(ends).all()
    assert space.contains(space.grid((2,) * len(space.axes))).all()
    highs, lows = torch.tensor(space.limits).T.flip(0)
    assert ends.values.tolist() == [highs.tolist(), lows.tolist()]
