"""Records: exact round trips, lines that are whole whatever happens, and damage that is named."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import upright
from upright import origin, records
from upright.record_files import Damage, append, read, read_folder
from upright.records import Origin, Record, Reported

RECORD = Record(
    dataset="cifar10",
    method="L2(nat, rnd×4; λ=0.5)",
    model="resnet32",
    seed=3,
    recipe={"drops": [0.5, 0.75], "space": {"unit": "px"}, "train_images": None},
    recipe_hash="0123456789ab",
    evaluation={"split": "test", "limit": None},
    measured={"nat": 0.9041, "grid-775": 0.1 + 0.2},
    images=10_000,
    reported={"nat": Reported(mean=0.9041, stderr=None, table="regspat")},
    steps=80_000,
    train_seconds=398.25,
    evaluate_seconds=15.5,
    forward_passes=7_760_000,
    data_digest={"test_images": "f9", "test_labels": "ce"},
    commit=None,
    versions={"torch": "2.13.0"},
    hardware="an abacus",
    finished="2025-03-01T12:00:00+00:00",
)

TEXTS = st.text(st.characters(codec=None), max_size=8)  # lone surrogates and line ends included
FRACTIONS = st.floats(0, 1)
SECONDS = st.floats(0, 1e9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
REPORTED = st.builds(Reported, mean=FRACTIONS, stderr=st.none() | FRACTIONS, table=TEXTS)
ORIGINS = st.builds(
    Origin,
    commit=st.none() | TEXTS,
    versions=st.dictionaries(TEXTS, TEXTS, max_size=2),
    hardware=TEXTS,
)
COUNTS = st.integers(0, 2**63 - 1)
RECORDS = st.builds(
    Record,
    dataset=TEXTS,
    method=TEXTS,
    model=TEXTS,
    seed=COUNTS,
    recipe=st.dictionaries(TEXTS, JSON, max_size=3),
    recipe_hash=TEXTS,
    evaluation=st.dictionaries(TEXTS, JSON, max_size=3),
    measured=st.dictionaries(TEXTS, FRACTIONS, max_size=3),
    images=st.integers(1, 2**63 - 1),
    reported=st.dictionaries(TEXTS, REPORTED, max_size=3),
    steps=COUNTS,
    train_seconds=SECONDS,
    evaluate_seconds=SECONDS,
    forward_passes=COUNTS,
    data_digest=st.dictionaries(TEXTS, TEXTS, max_size=2),
    commit=st.none() | TEXTS,
    versions=st.dictionaries(TEXTS, TEXTS, max_size=2),
    hardware=TEXTS,
    finished=st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat()),
    beside=st.none() | st.integers(1, 2**63 - 1),
    trained_by=st.lists(ORIGINS, max_size=2).map(tuple),
    data_variant=st.none() | TEXTS,
    data_content=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
)


def line(**changes: object) -> str:
    """A line as it lies in a file, with fields changed, added, or (by ``...``) left out."""
    fields = {"version": 1, **asdict(RECORD), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}) + "\n"


@given(many=st.lists(RECORDS, max_size=3))
def test_what_is_read_is_what_was_appended(tmp_path_factory, many):
    path = tmp_path_factory.mktemp("records") / "new" / "file.jsonl"
    append(path, RECORD)
    for record in many:
        append(path, record)
    found = read(path)
    assert found.records == (RECORD, *many)
    assert [repr(record) for record in found.records[1:]] == [repr(record) for record in many]
    assert found.damaged == ()


def test_a_file_is_lines_that_any_json_reader_reads(tmp_path):
    append(tmp_path / "file.jsonl", RECORD)
    append(tmp_path / "file.jsonl", replace(RECORD, seed=4))
    lines = (tmp_path / "file.jsonl").read_text().splitlines()
    assert [json.loads(text)["seed"] for text in lines] == [3, 4]
    assert json.loads(lines[0])["measured"] == {"nat": 0.9041, "grid-775": 0.30000000000000004}
    assert json.loads(lines[0])["reported"]["nat"]["table"] == "regspat"
    assert stat.S_IMODE((tmp_path / "file.jsonl").stat().st_mode) & 0o600 == 0o600


def test_what_older_lines_do_not_say_is_unknown(tmp_path):
    later = dict.fromkeys(("beside", "trained_by", "data_variant", "data_content"), ...)
    (tmp_path / "file.jsonl").write_text(line(**later))
    (record,) = read(tmp_path / "file.jsonl").records
    assert record == RECORD
    assert (record.beside, record.trained_by, record.trained_on) == (None, (), "an abacus")
    assert (record.data_variant, record.images_digest) == (None, record.data_digest)


def test_training_hardware_is_that_which_trained_all_of_it():
    one, other = (Origin(commit=None, versions={}, hardware=name) for name in ("one", "other"))
    assert replace(RECORD, trained_by=(one, replace(one, commit="abc"))).trained_on == "one"
    assert replace(RECORD, trained_by=(one, other)).trained_on == "one and other"


def test_every_committed_record_is_read():
    for file in (Path(__file__).parents[1] / "results").glob("*.jsonl"):
        found = read(file)
        assert found.records
        assert found.damaged == ()


def test_an_empty_file_has_no_records(tmp_path):
    (tmp_path / "file.jsonl").touch()
    assert read(tmp_path / "file.jsonl").records == ()
    assert read(tmp_path / "file.jsonl").damaged == ()


def test_the_module_needs_nothing_but_the_standard_library():
    """Its own and what it imports of the package, whose ``__init__`` is another matter."""
    package = str(Path(records.__file__).parent)
    code = f"""import sys, types
upright = sys.modules["upright"] = types.ModuleType("upright")
upright.__path__ = [{package!r}]
import upright.record_files"""
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)


def _append_many(path: Path, seed: int, barrier: multiprocessing.Barrier) -> None:
    barrier.wait()
    for number in range(50):
        padding = {"padding": "x" * (number * 400)}  # up to several pages and pipe buffers
        append(path, replace(RECORD, seed=seed, steps=number, recipe=padding))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # from fork
def test_writers_at_the_same_time_leave_every_line_whole(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, path = context.Barrier(4), tmp_path / "file.jsonl"
    writers = [context.Process(target=_append_many, args=(path, k, barrier)) for k in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = read(path)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert found.damaged == ()
    for seed in range(4):  # all of them, each writer's in its order
        steps = [record.steps for record in found.records if record.seed == seed]
        assert steps == list(range(50))
    assert len(found.records) == 200


@given(cut=st.integers(1, len(line()) - 2))
def test_after_a_torn_line_a_new_one_begins(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("records") / "file.jsonl"
    path.write_text(line() + line(seed=4)[:cut])
    append(path, replace(RECORD, seed=5))
    found = read(path)
    assert [record.seed for record in found.records] == [3, 5]
    assert [damage.line_number for damage in found.damaged] == [2]


def _append_with_room_for_half(path: Path) -> None:
    room = path.stat().st_size + len(line()) // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    with pytest.raises(OSError, match=r"file\.jsonl: no room for another record"):
        append(path, RECORD)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # from fork
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text(line())
    child = multiprocessing.get_context("fork").Process(
        target=_append_with_room_for_half, args=(path,)
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert path.read_text() == line()


def test_a_disk_that_is_full_at_the_sync_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file.jsonl"
    path.write_text(line())
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "no space left")))
    with pytest.raises(OSError, match="no space left"):
        append(path, replace(RECORD, seed=4))
    assert path.read_text() == line()


def test_once_adds_nothing_where_the_same_question_is_answered(tmp_path):
    path = tmp_path / "file.jsonl"
    assert append(path, RECORD, once=True)
    assert not append(path, replace(RECORD, train_seconds=7.0), once=True)
    assert append(path, replace(RECORD, seed=4), once=True)
    path.write_bytes(b"damage\n" + path.read_bytes())
    assert not append(path, RECORD, once=True)
    assert [record.seed for record in read(path).records] == [RECORD.seed, 4]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n", "Expecting value"),
        ("{}\n", "of version None, but this program reads version 1"),
        ("[1]\n", "not a JSON object"),
        (line(version=2), "of version 2, but this program reads version 1"),
        (line(colour="red", size=3), "Record has no colour, size"),
        (line(seed=..., model=...), "Record without model, seed"),
        (line(seed="3"), "seed is '3', but must be int"),
        (line(seed=True), "seed is True, but must be int"),
        (line(commit=7), "commit is 7, but must be str | None"),
        (line(measured=None), "measured is None, but must be dict[str, float]"),
        (line(measured={"nat": "high"}), "measured is {'nat': 'high'}, but"),
        (line(measured={"nat": 90.41}), "nat is 90.41, but must be a fraction: divide percent"),
        (line(measured={"nat": -0.1}), "nat is -0.1, but must be a fraction"),
        (line(measured={"nat": 10**400}), "nat is 1000"),
        (line(train_seconds=float("nan")), "NaN is not a number of JSON"),
        (line(recipe={"steps": float("inf")}), "Infinity is not a number of JSON"),
        (line(train_seconds=1e308), "train_seconds is 1e+308, but must lie between 0 and 1e+10"),
        (line(train_seconds=10**400), "train_seconds is 1000"),
        (line(evaluate_seconds=-1), "evaluate_seconds is -1, but must lie between 0 and"),
        (line(seed=-1), "seed is -1, but must lie between 0 and"),
        (line(images=0), "images is 0, but must lie between 1 and"),
        (line(images=10**400), "images is 1000"),
        (line(steps=-5), "steps is -5, but"),
        (line(forward_passes=2**64), "forward_passes is 18446744073709551616, but"),
        (line(beside=0), "beside is 0, but must lie between 1 and"),
        (line(finished="99999-01-01T00:00:00+00:00"), "Invalid isoformat string"),
        (line(finished="yesterday"), "Invalid isoformat string: 'yesterday'"),
        (line(finished="2025-03-01T12:00:00"), "finished has no time zone"),
        (line(beside="2"), "beside is '2', but must be int | None"),
        (line(trained_by=None), "trained_by is None, but must be tuple[Origin, ...]"),
        (line(trained_by=[{"commit": None}]), "Origin without hardware, versions"),
        (line(trained_by=[3]), "no Origin: 3"),
        (line(reported=[]), "reported is [], but must be dict[str, Reported]"),
        (line(reported={"nat": 0.9}), "no Reported: 0.9"),
        (line(reported={"nat": {"mean": 0.9, "table": "x"}}), "Reported without stderr"),
        (line(reported={"nat": {"mean": 9, "stderr": None, "table": "x"}}), "mean is 9, but"),
        ("[" * 100_000 + "\n", ""),
        ("\0" * 50 + "\n", "Expecting value"),
        (line().replace("abacus", "\udcff"), "'utf-8' codec can't decode byte 0xff"),
        (line()[:-2] + " }}\n", "Extra data"),
    ],
)
def test_a_damaged_line_is_named_and_passed_over(tmp_path, text, reason):
    path = tmp_path / "file.jsonl"
    path.write_text(line() + text + line(seed=4), errors="surrogateescape")
    found = read(path)
    assert [record.seed for record in found.records] == [3, 4]
    (damage,) = found.damaged
    assert damage == Damage(path, 2, damage.reason)
    assert damage.reason.startswith(reason)
    assert str(damage) == f"{path}:2: no record ({damage.reason})"


def test_a_folder_is_read_file_by_file_and_damage_is_told_by_its_file(tmp_path):
    (tmp_path / "b.jsonl").write_text(line(seed=2) + "[]\n")
    (tmp_path / "a.jsonl").write_text("[]\n" + line(seed=1))
    (tmp_path / "README.md").write_text("no records\n")
    found = read_folder(tmp_path)
    assert [record.seed for record in found.records] == [1, 2]
    assert [(damage.path.name, damage.line_number) for damage in found.damaged] == [
        ("a.jsonl", 1),
        ("b.jsonl", 2),
    ]
    assert read_folder(tmp_path / "absent").records == ()


def test_percentages_are_refused_before_they_are_written():
    with pytest.raises(ValueError, match="must be a fraction: divide percentages by 100"):
        replace(RECORD, measured={"nat": 91.76})
    with pytest.raises(ValueError, match=r"stderr is 1\.2, but must be a fraction"):
        Reported(mean=0.5, stderr=1.2, table="x")


def test_tuples_of_a_recipe_are_lists_from_the_start():
    assert replace(RECORD, recipe={"drops": (0.5, 0.75)}).recipe == {"drops": [0.5, 0.75]}


def test_a_key_tells_questions_apart_and_answers_not():
    same = replace(RECORD, measured={"grid-775": 0.0, "nat": 1.0}, commit="abc", train_seconds=1.0)
    others = [
        replace(RECORD, recipe_hash="ba9876543210"),
        replace(RECORD, seed=4),
        replace(RECORD, measured={"nat": 0.9041}),
        replace(RECORD, evaluation={"split": "test", "limit": 100}),
        replace(RECORD, data_digest={"test_images": "00", "test_labels": "ce"}),
    ]
    assert same.key == RECORD.key
    assert RECORD.key[:3] == ("0123456789ab", 3, ("grid-775", "nat"))
    assert len({record.key for record in (RECORD, *others)}) == 6


def test_a_key_is_the_same_for_the_same_images_in_another_order_that_says_so():
    other = {"test_images": "aa", "test_labels": "bb"}
    assert replace(RECORD, data_digest=other).key != RECORD.key
    assert replace(RECORD, data_digest=other, data_content=RECORD.data_digest).key == RECORD.key
    assert replace(RECORD, data_variant="official").key == RECORD.key


class TestOrigin:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """A checkout with a package in it, and results beside the package."""
        monkeypatch.delenv("UPRIGHT_COMMIT", raising=False)
        package = tmp_path / "src" / "package"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (tmp_path / "results.jsonl").touch()
        identity = ("-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgsign=false")
        for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        return package

    def test_a_commit_is_the_head_of_the_checkout(self, package):
        asked = ["git", "log", "-1", "--format=%H"]
        head = subprocess.run(asked, cwd=package, capture_output=True, text=True, check=True)
        assert origin.commit_of(package) == head.stdout.strip()

    def test_a_commit_is_dirty_where_the_package_was_changed(self, package):
        clean = origin.commit_of(package)
        (package.parent.parent / "results.jsonl").write_text("new\n")
        assert origin.commit_of(package) == clean
        (package / "new.py").touch()
        assert origin.commit_of(package) == f"{clean}+dirty"
        (package / "new.py").unlink()
        (package / "__init__.py").write_text("changed = True\n")
        assert origin.commit_of(package) == f"{clean}+dirty"

    def test_entries_of_the_zoo_are_no_code(self, package):
        clean = origin.commit_of(package)
        (package / "zoo" / "entries" / "cifar10").mkdir(parents=True)
        (package / "zoo" / "entries" / "cifar10" / "std.json").touch()
        assert origin.commit_of(package) == clean
        (package / "zoo" / "new.py").touch()
        assert origin.commit_of(package) == f"{clean}+dirty"

    def test_a_package_in_someone_else_s_checkout_has_no_commit(self, package):
        installed = package.parent / "site-packages"
        installed.mkdir()
        (installed / "__init__.py").touch()
        assert origin.commit_of(installed) is None

    def test_without_a_checkout_or_without_git_there_is_no_commit(
        self, package, tmp_path_factory, monkeypatch
    ):
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path_factory.getbasetemp()))
        assert origin.commit_of(tmp_path_factory.mktemp("plain")) is None
        monkeypatch.setenv("PATH", "")
        assert origin.commit_of(package) is None

    def test_code_without_its_history_can_be_told_its_commit(self, tmp_path, monkeypatch):
        monkeypatch.setenv("UPRIGHT_COMMIT", "abc")
        assert origin.commit_of(tmp_path) == "abc"

    def test_a_process_keeps_the_commit_that_it_began_with(self, monkeypatch):
        began = origin.commit()
        monkeypatch.setenv("UPRIGHT_COMMIT", "edited meanwhile")
        assert origin.commit() == began
        assert origin.origin_on("cpu").commit == began

    def test_several_processes_are_other_hardware_than_one(self):
        one = origin.origin_on("cpu").hardware
        assert origin.origin_on("cpu", processes=8).hardware == f"8 x {one}"

    def test_versions_and_hardware_are_named(self):
        assert origin.versions()["upright"] == upright.__version__
        assert origin.versions()["torch"] == torch.__version__
        assert all(isinstance(version, str) for version in origin.versions().values())
        assert len(origin.hardware(torch.device("cpu"))) > 2
