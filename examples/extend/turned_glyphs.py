"""A paper of one table, as one value. Nobody wrote it, and its numbers are made up."""

from upright import Space
from upright.evaluation import Question
from upright.objective import Objective
from upright.paper import Layout, Method, Paper

NUMBERS = """\
table,dataset,method,metric,mean,stderr
turns,Glyphs,plain,nat,97.50,0.20
turns,Glyphs,turned,nat,96.10,0.30
turns,Glyphs,plain,grid-7,21.40,1.10
turns,Glyphs,turned,grid-7,58.30,
"""

TURNED_GLYPHS = Paper(
    numbers=NUMBERS,
    datasets={"glyphs": "Glyphs"},
    layouts=(
        Layout(
            name="turns",
            title="Training on turned images",
            methods=("plain", "turned"),
            datasets=("glyphs",),
            metrics=("nat", "grid-7"),
        ),
    ),
    methods={
        "plain": Method(objective=Objective.parse("std"), model="convnet"),
        "turned": Method(objective=Objective.parse("std*"), model="convnet"),
    },
    question=Question(space=Space.of("rotate(90)"), fill="border"),
    training={"glyphs": {"steps": 3, "batch": 16, "train_images": 64, "flips": False}},
    decisive="grid-7",
    seeds=3,
    baseline=lambda method: "plain" if method.objective.attack else None,
)
