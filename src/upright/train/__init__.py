"""Training: recipes, one plain loop, and checkpoints that survive what kills it."""

from upright.train.checkpoint import Checkpoint, DamagedCheckpoint, RunDirectory, load_network
from upright.train.finished import FinishedRun
from upright.train.learner import PLAIN, SlowPath, Speed
from upright.train.log import LongRun
from upright.train.loop import TrainedRun, train, train_together
from upright.train.mean import Mean
from upright.train.pair import Pair
from upright.train.plan import Plan
from upright.train.pretrained import FreshLayer
from upright.train.published import published, published_settings
from upright.train.recipe import Recipe, TrainingPrecision

__all__ = [
    "PLAIN",
    "Checkpoint",
    "DamagedCheckpoint",
    "FinishedRun",
    "FreshLayer",
    "LongRun",
    "Mean",
    "Pair",
    "Plan",
    "Recipe",
    "RunDirectory",
    "SlowPath",
    "Speed",
    "TrainedRun",
    "TrainingPrecision",
    "load_network",
    "published",
    "published_settings",
    "train",
    "train_together",
]
