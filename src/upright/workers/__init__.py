"""Who makes runs: tasks, and the engines that perform them, here or on a cluster."""

from upright.workers.engine import Engine, Failure, LocalEngine, runs_at_once
from upright.workers.ray_engine import RayEngine, ray_engine
from upright.workers.task import Task, measure_task, perform, run_folder

__all__ = [
    "Engine",
    "Failure",
    "LocalEngine",
    "RayEngine",
    "Task",
    "measure_task",
    "perform",
    "ray_engine",
    "run_folder",
    "runs_at_once",
]
