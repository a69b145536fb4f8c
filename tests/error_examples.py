"""One instance of every error in the tree; a new class without one fails the suite."""

from collections.abc import Iterator

from core import errors

EXAMPLES: tuple[errors.PrecedentError, ...] = (
    errors.MalformedBody("JSON syntax error", 17),
    errors.InvalidRequest(
        (errors.Problem(("body", "questions", "q", 1), "must be a string", "string_type"),)
    ),
    errors.InvalidHeader("x-precedent-evidence-valid-until", "is no time"),
    errors.EvidenceExpired(1_700_000_000.0, 1_700_000_060.5),
    errors.NotCached(),
    errors.UnknownModel(("precedent-mini", "jev-latest")),
    errors.UnsupportedFeature("stream", "answers arrive whole"),
    errors.BodyTooLarge(2_097_152),
    errors.StateTooLong(300_000, 200_000),
    errors.UnsupportedEncoding("this Content-Encoding is not supported"),
    errors.UnsupportedMediaType(),
    errors.BodyTooSlow(10.0),
    errors.ClientLeft(),
    errors.MissingCredentials(),
    errors.WrongCredentials(),
    errors.AmbiguousCredentials(),
    errors.Forbidden("decide"),
    errors.TaskNotFound("support"),
    errors.TaskConflict("support", 3, 2),
    errors.TaskBusy("support"),
    errors.TasksReadOnly(),
    errors.FitFailed("support", "its process went down"),
    errors.EngineUnavailable("no replica is running"),
    errors.EngineFailed("ValueError"),
    errors.DeadlineExceeded(9.0),
    errors.StoreUnavailable("get", "timed out"),
    errors.Overloaded("2000 callers wait already", 0.5),
    errors.SettingsError("deadline_s", "must be above 0"),
    errors.ArtefactMismatch("model.onnx", "aa", "bb", "run make models"),
    errors.FingerprintMismatch("aa", "bb"),
)


def subclasses(kind: type[errors.PrecedentError]) -> Iterator[type[errors.PrecedentError]]:
    """Every class below `kind`, depth first, in the order of definition."""
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def leaves() -> list[type[errors.PrecedentError]]:
    """Every error that is raised: the classes without subclasses."""
    return [kind for kind in subclasses(errors.PrecedentError) if not kind.__subclasses__()]
