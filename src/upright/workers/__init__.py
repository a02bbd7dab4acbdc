"""Who makes runs: tasks, and the engines that perform them, here or on a cluster."""

from upright.workers.engine import Engine, Failure, LocalEngine, room_on
from upright.workers.ray_engine import RayEngine, ray_engine
from upright.workers.task import Task, measure, perform, run_folder

__all__ = [
    "Engine",
    "Failure",
    "LocalEngine",
    "RayEngine",
    "Task",
    "measure",
    "perform",
    "ray_engine",
    "room_on",
    "run_folder",
]
