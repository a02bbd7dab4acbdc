"""The state of a long evaluation on disk, so that it continues where it was stopped.

A state is not continued with another question or other data, nor with another model: a module is
known by a digest of its weights, a model of a file by one of that, and all of them by their answers
to the first images, which of a function is all there is.

After each chunk one file is written, whole or not at all: with its piece alone, or together with
those of files before it that have no more, whose place it takes. So a piece is written again only
when there are twice as many, and n pieces lie in about log n files: the state's own, which has what
all pieces share, and ``.more-1``, ``.more-2`` and so on beside it. In the end there is one.

While a chunk takes longer, the answers about it that are there so far are written to another file,
``.begun-0`` of the first process, which goes when the chunk is done.

Of several processes each writes files of its own, with all that was known when it started and what
it measured since. All of these files together are the state, whoever continues it.
"""

from __future__ import annotations

import glob
import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from upright.callers import warn_caller
from upright.evaluation.state import State, checksum, load_state, save_state
from upright.evaluation.stream import Chunk
from upright.files import remove_left_over
from upright.identity import Identity
from upright.ranks import ALONE, Ranks

__all__ = ["StateFiles", "UnwrittenState"]


class UnwrittenState(UserWarning):
    """A state could not be written: the disk is full, or gone."""


@dataclass
class StateFiles:
    """The files of one process, or those of several; without a path nothing is kept."""

    path: Path | None
    ranks: Ranks = ALONE
    _written: list[tuple[int, ...]] = field(default_factory=list, init=False)
    """By this process: where the pieces start that each of its files has."""
    _digest: str = field(default="", init=False)
    """Of what all pieces share, when the first of the files was written."""
    _told: bool = field(default=False, init=False)
    """Whether it was said that a file could not be written."""

    def load(self, question: dict[str, object], model: object) -> State:
        """Read all files, also those of more processes than there are now."""
        if self.path is None:
            return State(question)
        state = State(question | {"model": asdict(Identity.of(model))})
        files = [file for file in (self.path, *_numbered(self.path, "rank")) if file.exists()]
        older = question | {"model": _older_digest(model) if files else None}
        asked = state.question
        for file in files:
            found = _with_more(file, asked, older)
            state.merge(found)
            if not found.knows_model:  # as an older one of a file: its answers have to tell
                state.question = found.question
        for file in _numbered(self.path, "begun", after=-1):
            state.merge(load_state(file, asked, older))
        for start in state.pieces.keys() & state.begun.keys():  # done before its file was removed
            del state.begun[start]
        return state

    def save(self, state: State, chunk: Chunk) -> None:
        """Write what was measured to a file, after one more chunk."""
        if self.path is None:
            return
        state.pieces[chunk.start].checksum = checksum(chunk)
        state.begun.pop(chunk.start, None)
        if state.digest != self._digest:  # nothing is written yet, or not of these constants
            self._written, self._digest = [], state.digest
            starts = tuple(state.pieces)
        else:
            starts = (chunk.start,)
        while self._written and len(self._written[-1]) <= len(starts):
            starts = self._written.pop() + starts
        try:
            self._write(state.part(starts))
        except OSError as error:
            self._digest = ""  # what is on the disk is no longer known: the next file has all
            self._tell(error)
        else:
            self._written.append(starts)
            if state.begun:  # of others, who were stopped too
                self.save_begun(state)
            else:
                self._begun.unlink(missing_ok=True)

    def save_begun(self, state: State) -> None:
        """Write the answers about chunks that are under way."""
        try:
            save_state(self._begun, State(state.question, {}, state.constants, begun=state.begun))
        except OSError as error:
            self._tell(error)

    @property
    def _begun(self) -> Path:
        """The file of this process for what is under way."""
        assert self.path is not None
        return self.path.with_name(f"{self.path.name}.begun-{self.ranks.rank}")

    def _write(self, state: State) -> None:
        """Write the file after those that stay; the ones that it stands for go."""
        assert self.path is not None
        own = self.path.name if self.ranks.leads else f"{self.path.name}.rank-{self.ranks.rank}"
        first, place = self.path.with_name(own), len(self._written)
        if place:
            save_state(first.with_name(f"{own}.more-{place}"), state, beside=self._digest)
        else:
            save_state(first, state)
        for file in _numbered(first, "more", after=place):
            file.unlink(missing_ok=True)

    def finish(self, state: State) -> None:
        """Write all that was measured into one file, and remove the others."""
        if self.path is None:
            return
        try:
            self._leave_one(self.path, state)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        """Warn once: what is measured does not hang on what would only save measuring it again."""
        if not self._told:
            warn_caller(
                f"the state {self.path} cannot be written ({error.strerror}); the evaluation goes "
                "on, but what is measured meanwhile would be lost if it is stopped",
                UnwrittenState,
            )
        self._told = True

    @staticmethod
    def _leave_one(path: Path, state: State) -> None:
        ranks = _numbered(path, "rank")
        others = [more for file in (path, *ranks) for more in _numbered(file, "more")]
        others += _numbered(path, "begun", after=-1)
        if ranks or others:
            save_state(path, state)
        for file in (*ranks, *others):
            file.unlink(missing_ok=True)
        # Of those files, too: no other will be written under their names.
        remove_left_over(path.parent, path.name, and_longer=True)


def _with_more(path: Path, asked: dict[str, object], older: dict[str, object]) -> State:
    """Read a file and those beside it. What stands beside another than it is left over."""
    state = load_state(path, asked, older)
    for file in _numbered(path, "more") if state.constants else ():
        more = load_state(file, asked, older)
        if more.beside == state.digest:
            state.merge(more)
    return state


def _numbered(path: Path, kind: str, *, after: int = 0) -> list[Path]:
    """The files of a kind beside one, in the order of their numbers."""
    start = f"{path.name}.{kind}-"
    files = path.parent.glob(f"{glob.escape(start)}*")
    numbers = {file: file.name.removeprefix(start) for file in files}
    known = {file: int(number) for file, number in numbers.items() if number.isdecimal()}
    return sorted((file for file in known if known[file] > after), key=known.__getitem__)


def _older_digest(model: object) -> str | None:
    """Digest a module's weights as states did when they knew nothing else of a model."""
    state = model.state_dict() if isinstance(model, nn.Module) else {}
    if not any(isinstance(value, Tensor) for value in state.values()):
        return None
    digest = hashlib.sha256()
    for name, value in state.items():
        digest.update(name.encode())
        if isinstance(value, Tensor) and value.layout != torch.strided:
            return None  # of which they knew nothing
        if isinstance(value, Tensor):
            flat = value.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().tobytes())
        elif isinstance(value, str):
            digest.update(value.encode())
    return digest.hexdigest()
