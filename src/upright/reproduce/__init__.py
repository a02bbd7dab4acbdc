"""The paper's experiments: what it reports, the runs that fill its tables, and who makes them."""

from upright.reproduce.cluster import RayEngine, ray_engine
from upright.reproduce.engine import Engine, Failure, LocalEngine, room_on
from upright.reproduce.guest import Guest
from upright.reproduce.keep import Subject, choose_shown, grid_among, keep
from upright.reproduce.layout import LAYOUTS, Layout, table_names
from upright.reproduce.pack import add_to_zoo
from upright.reproduce.pair import Pair
from upright.reproduce.plan import paper_method, wanted
from upright.reproduce.record import FinishedRun, record_of
from upright.reproduce.reported import PrintedNumber, all_reported, paper_rows, reported
from upright.reproduce.settings import Settings
from upright.reproduce.work import Task, measure, perform, run_folder

__all__ = [
    "LAYOUTS",
    "Engine",
    "Failure",
    "FinishedRun",
    "Guest",
    "Layout",
    "LocalEngine",
    "Pair",
    "PrintedNumber",
    "RayEngine",
    "Settings",
    "Subject",
    "Task",
    "add_to_zoo",
    "all_reported",
    "choose_shown",
    "grid_among",
    "keep",
    "measure",
    "paper_method",
    "paper_rows",
    "perform",
    "ray_engine",
    "record_of",
    "reported",
    "room_on",
    "run_folder",
    "table_names",
    "wanted",
]
