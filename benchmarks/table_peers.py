"""What other software makes of the same labelled texts, for the benchmarks of tables to stand beside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import shad0w
from model2vec import StaticModel
from shad0w.reliability import SelectiveRiskController
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer

from core.tables.certify import Outcomes
from core.tables.static_vectors import StaticVectors

QUESTION = "answer"


@dataclass(frozen=True, slots=True)
class Shad0w:
    """`shad0wllm`, trained on labelled texts, as its own loader serves it: in compiled C."""

    model: Any

    @classmethod
    def trained(
        cls,
        texts: Sequence[str],
        labels: Sequence[str],
        certify: tuple[Sequence[str], Sequence[str]],
        delta: float,
    ) -> "Shad0w":
        """Train on some texts; others only tell it its confidence.

        Args:
            texts: to fit on.
            labels: of each.
            certify: texts and labels that it does not fit on.
            delta: of its certificate.
        """
        schema = {QUESTION: {"type": "choice", "criteria": dict.fromkeys(sorted({*labels, *certify[1]}))}}
        model, _ = shad0w.shadow_compile(
            schema, _records(texts, labels), delta=delta, cal_records=_records(*certify)
        )
        bundle = mkdtemp(prefix="shad0w-")
        model.save(bundle)
        return cls(shad0w.load(bundle))

    def decide(self, text: str) -> dict[str, Any]:
        """Its answer with all probabilities."""
        answer: dict[str, Any] = self.model.decide(text, observe=False)["answers"][QUESTION]
        return answer

    def outcomes(self, texts: Sequence[str], labels: Sequence[str]) -> Outcomes:
        """How sure it is of each answer, and which are wrong."""
        answers = [self.decide(text) for text in texts]
        return Outcomes(
            np.array([answer["confidence"] for answer in answers]),
            np.array([answer["choice"] != label for answer, label in zip(answers, labels, strict=True)]),
        )


def shad0w_threshold(certify: Outcomes, alpha: float, delta: float) -> float:
    """The threshold that its own procedure proves."""
    controller = SelectiveRiskController(alpha, delta).fit(certify.confidence, ~certify.wrong)
    return float(controller.threshold)


def static_model_classifier(
    vectors: StaticVectors, texts: Sequence[str], labels: npt.NDArray[np.int64]
) -> Callable[[str], Any]:
    """model2vec's encoder over `vectors`, then scikit-learn's regression: the distribution of a text."""
    model = StaticModel(
        np.array(vectors.vectors), Tokenizer.from_buffer(vectors.tokenizer_json), normalize=True
    )
    classifier = LogisticRegression(max_iter=300).fit(model.encode(list(texts)), labels)
    return lambda text: classifier.predict_proba(model.encode([text]))


def _records(texts: Sequence[str], labels: Sequence[str]) -> list[dict[str, str]]:
    return [{"text": text, QUESTION: label} for text, label in zip(texts, labels, strict=True)]
