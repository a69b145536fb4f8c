"""A lesson learned with the models of this host. Imports what it takes to fit, so a Router never does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.engines.artefact import FOLDER, TOKENIZER_FILE, encoder_digest_of, read_manifest, verify
from core.engines.embedded import Encoder
from core.errors import InvalidRequest, Problem, SettingsError
from core.tables.certificate import Certificate
from core.tables.static_vectors import ENGLISH, StaticVectors, load_static
from core.tables.students import EncoderStudent, StaticStudent, Student
from core.tables.table import Table
from core.tables.tokens import Tokens
from core.tables.watching import Tail
from core.tasks.lesson import Lesson, Trained, Wanted
from core.tasks.record import FastTableSettings
from core.tasks.tokenizer import row_tokenizer
from core.tasks.training import recertify, train

Tell = Callable[[float], None]
Vectors = npt.NDArray[np.float32]


def learn(lesson: Lesson, wanted: Wanted, tell: Tell) -> list[Trained] | tuple[Certificate, Tail | None]:
    """Fit and certify what is wanted, or certify anew what was fitted.

    Args:
        lesson: what is to be learned.
        wanted: by which students, with which models.
        tell: told the share done, 0 to 1, never less than before.

    Raises:
        InvalidRequest: see `train` and `recertify`; or no static model of the name that was given.
        SettingsError: a model of ours is not there.
        ArtefactMismatch: it is damaged.
    """
    far = _HowFar(tell)
    vectors = SentenceVectors(Path(wanted.encoder_dir), len(lesson.examples.texts), far.encoded)
    if wanted.recertify is not None:
        return recertify(lesson, Table.of(wanted.recertify[0]), wanted.recertify[1], vectors.encode)
    return train(lesson, _students(wanted, vectors), vectors.encode, far.fitted)


@dataclass(frozen=True, slots=True)
class RowStudent:
    """What learns a task from rows, and by which tokenizer their features must be."""

    student: Student
    tokenizer: str  # digest


def row_student(wanted: FastTableSettings, models_dir: Path) -> RowStudent:
    """The student of a task that learns from traffic.

    Raises:
        SettingsError: a model of ours is not there.
        ArtefactMismatch: it is damaged.
    """
    tokenizer = row_tokenizer(wanted, models_dir)
    if wanted.kind == "encoder":
        folder = models_dir / FOLDER
        vectors = SentenceVectors(folder, 1, lambda share: None)
        student: Student = EncoderStudent(vectors.encode, vectors.digest, tokenizer)
    else:
        student = StaticStudent(load_static(wanted.static_model, models_dir))
    return RowStudent(student, Tokens(tokenizer).digest)


def _students(wanted: Wanted, vectors: "SentenceVectors") -> dict[str, Student]:
    students: dict[str, Student] = {}
    if wanted.kind in ("static", "auto"):
        static = _static_vectors(wanted)
        # What the embedded encoder makes of a text in another language teaches nothing.
        teacher = vectors.encode if wanted.static_model == ENGLISH else None
        students["static"] = StaticStudent(static, teacher)
    if wanted.kind in ("encoder", "auto"):
        students["encoder"] = EncoderStudent(vectors.encode, vectors.digest, vectors.tokenizer_json)
    return students


def _static_vectors(wanted: Wanted) -> StaticVectors:
    try:
        return load_static(wanted.static_model, Path(wanted.models_dir))
    except SettingsError as error:
        if wanted.static_model == ENGLISH:
            raise  # the operator's to mend; any other is the caller's choice
        problem = Problem(("body", "fast_table", "static_model"), error.problem, "value_error")
        raise InvalidRequest((problem,)) from None


class SentenceVectors:
    """The embedded model's vectors, each computed once; the model is opened when the first is needed.

    Args:
        folder: of the embedded model.
        expected: how many texts there may be.
        tell: told the share of them that is done, 0 to 1.
    """

    def __init__(self, folder: Path, expected: int, tell: Tell) -> None:
        self._folder, self._expected, self._tell = folder, expected, tell
        self._known: dict[str, Vectors] = {}
        self._encoder: Encoder | None = None

    @property
    def digest(self) -> str:
        """Of everything that can move a vector.

        Raises:
            SettingsError: there is no model.
        """
        return encoder_digest_of(read_manifest(self._folder))

    @property
    def tokenizer_json(self) -> bytes:
        """How the model's tokenizer is written."""
        return (self._folder / TOKENIZER_FILE).read_bytes()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of n texts, shape (n, dim).

        Raises:
            SettingsError: there is no model.
            ArtefactMismatch: it is damaged.
        """
        if self._encoder is None:
            verify(self._folder, read_manifest(self._folder))
            self._encoder = Encoder(self._folder, 1)
        for text in texts:
            if text not in self._known:
                self._known[text] = self._encoder.encode(text).vector
                self._tell(min(1.0, len(self._known) / self._expected))
        return np.stack([self._known[text] for text in texts])


class _HowFar:
    """One number for two things: texts are encoded, and students are fitted."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._encoded, self._fitted = tell, 0.0, 0.0

    def encoded(self, share: float) -> None:
        """So much of the texts is encoded."""
        self._encoded = share
        self._tell((self._encoded + self._fitted) / 2)

    def fitted(self, share: float) -> None:
        """So much of the students is fitted."""
        self._fitted = share
        self._tell((self._encoded + self._fitted) / 2)
