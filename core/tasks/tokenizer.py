"""The tokenizer by which rows are made: the same for a Router that writes them and a job that reads them."""

from pathlib import Path

from core.engines.artefact import FOLDER, TOKENIZER_FILE
from core.errors import SettingsError
from core.tables.static_vectors import tokenizer_of
from core.tasks.record import FastTableSettings


def row_tokenizer(wanted: FastTableSettings, models_dir: Path) -> bytes:
    """The tokenizer of a task's student, as it is written.

    Raises:
        SettingsError: it is not on this host.
        ArtefactMismatch: it is damaged.
    """
    if wanted.kind != "encoder":
        return tokenizer_of(wanted.static_model, models_dir)
    path = models_dir / FOLDER / TOKENIZER_FILE
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SettingsError("engine.models_dir", f"has no {path}; run `python -m jobs.models`") from None
