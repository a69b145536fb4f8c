"""The embedded engine's readings, to the last bit where that is promised, and to the direction where not."""

import asyncio
import math

import numpy as np
import pytest

from core.contract.questions import Choice, Noul, Question, Score
from core.engines.base import Item, Reading
from core.engines.batcher import Batched
from core.engines.embedded import EmbeddedModel
from core.engines.profile import MAX_TOKENS, Profile
from core.engines.vectors import Encode, Encoded

NOUL = Noul("Is a refund due?", None, None)
CHOICE = Choice("Which team?", ("billing", "technical", "sales"), ("charges, invoices", None, "offers"))
SCORE = Score("How urgent?", ("can wait", "this week", "today"), ("can wait", "this week", "today"))
QUESTIONS: tuple[Question, ...] = (NOUL, CHOICE, SCORE)
STATE = "I was charged twice for order 5512."
TEXT = (
    "the parcel came late and its box was open please refund 5512 café naïve Ünïcode 数据 заказ 🙂 "
    "supercalifragilistic x-1 [MASK] {} a,b;c"
)
WORDS = TEXT.split()
ROOM = MAX_TOKENS - 2  # words of one token that fit, beside the marks of start and end


def read(model: EmbeddedModel, *items: Item) -> list[Reading]:
    readings = model.read(items)
    assert all(isinstance(reading, Reading) for reading in readings)
    return [reading for reading in readings if isinstance(reading, Reading)]


def one(model: EmbeddedModel, state: str, question: Question = CHOICE) -> Reading:
    return read(model, Item(state, question))[0]


def yes(model: EmbeddedModel, state: str, question: Noul) -> float:
    return one(model, state, question).probabilities[0]


def random_items(seed: int, count: int) -> list[Item]:
    rng = np.random.default_rng(seed)
    states = [" ".join(rng.choice(WORDS, rng.integers(1, 40))) for _ in range(count)]
    return [Item(state, QUESTIONS[rng.integers(len(QUESTIONS))]) for state in states]


class Counting:
    """An encoder that remembers every text it was asked for."""

    def __init__(self, encode: Encode) -> None:
        self.texts: list[str] = []
        self._encode = encode

    def __call__(self, text: str) -> Encoded:
        self.texts.append(text)
        return self._encode(text)


def flat(text: str) -> Encoded:
    """An encoder for whom all texts are alike."""
    return Encoded(np.array([1, 0], dtype=np.float32), 3, False)


ROUND_PROFILE = Profile(
    option_scale=2.0,
    instruction_weight=0.5,
    yes_scale=10.0,
    yes_offset=-5.0,
    sides_yes_scale=4.0,
    sides_no_scale=1.0,
    sides_offset=-2.0,
)
COSINES = {"state": 1.0, "near": 0.8, "far": 0.6, "asked": 0.0}


def on_a_circle(text: str) -> Encoded:
    """An encoder with vectors of two dimensions: the cosine with "state" is in `COSINES`."""
    cosine = COSINES[text]
    return Encoded(np.array([cosine, math.sqrt(1 - cosine**2)], dtype=np.float32), 1, False)


@pytest.fixture
def by_hand():
    """A model whose every number can be worked out by hand."""
    return EmbeddedModel(on_a_circle, ROUND_PROFILE, "by hand")


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


# To the last bit


@pytest.mark.parametrize("seed", range(3))
async def test_a_reading_does_not_depend_on_its_company_to_the_last_bit(model, seed):
    rng = np.random.default_rng(seed)
    items = random_items(seed, 48)
    alone = [read(model, item)[0] for item in items]
    engine = Batched(model, max_batch_tokens=int(rng.integers(10, 1_000)))
    callers = [list(part) for part in np.split(np.arange(48), np.sort(rng.choice(48, 16, replace=False)))]

    answers = await asyncio.gather(*(engine.answer([items[n] for n in caller]) for caller in callers))
    await engine.close()

    assert [answer for caller in answers for answer in caller] == alone


def test_two_instances_agree_to_the_last_bit_whatever_threads_they_have(model, artefact):
    items = random_items(7, 30)
    expected = read(model, *items)

    for threads in (1, 2):
        assert read(EmbeddedModel.load(artefact, threads), *items) == expected


@pytest.mark.parametrize("count", [2, 3, 7, 23, 24, 26, 77, 255])
def test_options_with_one_text_have_one_probability_wherever_they_stand(model, count):
    # Their names differ and their texts do not: an underscore is read as a blank.
    names = tuple("twin" + "".join("_ "[n >> bit & 1] + "twin" for bit in range(8)) for n in range(count))
    assert len(set(names)) == count

    probabilities = one(model, STATE, Choice("Which?", names, (None,) * count)).probabilities

    assert len(set(probabilities)) == 1


def test_an_option_keeps_its_probability_when_two_others_change_places(model):
    there = one(model, STATE, Choice(None, ("billing", "technical", "sales"), (None,) * 3)).probabilities
    moved = one(model, STATE, Choice(None, ("sales", "technical", "billing"), (None,) * 3)).probabilities

    assert moved == pytest.approx(there[::-1], rel=1e-12)


# What is encoded, and how often


def test_a_state_that_several_questions_share_is_encoded_once():
    encode = Counting(flat)

    EmbeddedModel(encode, ROUND_PROFILE, "").read([Item(STATE, question) for question in QUESTIONS])

    assert encode.texts.count(STATE) == 1


def test_a_state_is_not_kept_from_one_batch_to_the_next():
    encode = Counting(flat)
    model = EmbeddedModel(encode, ROUND_PROFILE, "")

    model.read([Item(STATE, NOUL)])
    model.read([Item(STATE, NOUL)])

    assert encode.texts.count(STATE) == 2


def test_the_texts_of_a_question_are_encoded_once_for_all_its_states():
    encode = Counting(flat)
    model = EmbeddedModel(encode, ROUND_PROFILE, "")

    model.read([Item("a", CHOICE), Item("b", CHOICE)])
    model.read([Item("c", CHOICE)])

    assert sorted(encode.texts) == sorted(
        ["a", "b", "c", "Which team?", "billing: charges, invoices", "technical", "sales: offers"]
    )


def test_items_of_other_isolation_share_neither_state_nor_question():
    encode = Counting(flat)
    model = EmbeddedModel(encode, ROUND_PROFILE, "")

    model.read([Item(STATE, NOUL, "tenant a"), Item(STATE, NOUL, "tenant b")])

    assert sorted(encode.texts) == [STATE, STATE, "Is a refund due?", "Is a refund due?"]


def test_isolation_does_not_move_an_answer(model):
    a, b = read(model, Item(STATE, CHOICE, "tenant a"), Item(STATE, CHOICE, "tenant b"))

    assert a == b


# Long texts


def test_a_text_of_as_many_tokens_as_fit_is_read_whole(model):
    reading = one(model, "a " * ROOM)

    assert (reading.input_tokens, reading.truncated) == (MAX_TOKENS, False)


def test_a_text_of_one_token_more_says_that_part_was_left_out(model):
    reading = one(model, "a " * (ROOM + 1))

    assert (reading.input_tokens, reading.truncated) == (MAX_TOKENS, True)


@pytest.mark.parametrize("count", [ROOM + 2, 1_000, 10_000])
def test_of_a_long_text_both_ends_count_and_the_middle_does_not(model, count):
    def changed(place: int) -> Reading:
        words = ["a"] * count
        words[place] = "refund"
        return one(model, " ".join(words))

    whole, end = one(model, " ".join(["a"] * count)), ROOM // 2

    for place in (0, end - 1, count - end, count - 1):
        assert changed(place) != whole, place
    for place in (end, count // 2, count - end - 1):
        assert changed(place) == whole, place


def test_blanks_around_and_inside_a_text_leave_nothing_out(model):
    blank = " \n" * 9_000

    assert one(model, f"{blank}refund{blank}please{blank}") == one(model, "refund please")


def test_blanks_do_not_stand_for_an_end_of_a_long_text(model):
    blank, middle = " " * 9_000, " filler" * 5_000

    assert one(model, f"{blank}refund{middle}") == one(model, f"refund{middle}")
    assert one(model, f"{blank}refund{middle}") != one(model, f"{blank}invoice{middle}")


def test_part_of_a_description_left_out_is_part_of_a_text_left_out(model):
    question = Choice(None, ("billing", "sales"), ("charges " * 2_000, None))

    reading = one(model, "short", question)

    assert reading.truncated
    assert reading.input_tokens == 3
    assert not one(model, "short", CHOICE).truncated


# The readout, worked by hand: cosines are 0.8 and 0.6


def test_a_choice_weighs_nearness_to_the_state(by_hand):
    question = Choice(None, ("near", "far"), (None, None))

    assert one(by_hand, "state", question).probabilities == pytest.approx(
        (sigmoid(2 * 0.2), sigmoid(-2 * 0.2)), abs=1e-6
    )


def test_nearness_to_the_instructions_counts_as_much_as_their_weight(by_hand):
    # "asked" stands at a right angle to "state": its cosines with near and far are their sines, 0.6 and 0.8.
    logit = 2 * ((0.8 + 0.5 * 0.6) - (0.6 + 0.5 * 0.8))

    for question in (
        Choice("asked", ("near", "far"), (None, None)),
        Score("asked", ("near", "far"), ("near", "far")),
    ):
        assert one(by_hand, "state", question).probabilities == pytest.approx(
            (sigmoid(logit), sigmoid(-logit)), abs=1e-6
        )


@pytest.mark.parametrize("blank", [None, "", " "])
def test_blank_instructions_count_as_none(by_hand, blank):
    none = one(by_hand, "state", Choice(None, ("near", "far"), (None, None)))

    assert one(by_hand, "state", Choice(blank, ("near", "far"), (None, None))) == none


@pytest.mark.parametrize(
    ("question", "logit"),
    [
        (Noul("near", None, None), 10 * 0.8 - 5),
        (Noul(None, "near", None), 10 * 0.8 - 5),
        (Noul(None, None, "near"), -(10 * 0.8 - 5)),
        (Noul(None, "near", "far"), 4 * 0.8 - 0.6 - 2),
        (Noul(None, "far", "near"), 4 * 0.6 - 0.8 - 2),
        (Noul("near", None, "far"), 4 * 0.8 - 0.6 - 2),
        (Noul("near", " ", " "), 10 * 0.8 - 5),
    ],
)
def test_a_yes_weighs_the_side_or_the_sides_that_were_described(by_hand, question, logit):
    assert one(by_hand, "state", question).probabilities == pytest.approx(
        (sigmoid(logit), 1 - sigmoid(logit)), abs=1e-6
    )


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Choice(None, ("near", "far"), (None, None)), (1.0, 0.0)),
        (Noul("near", None, None), (1.0, 0.0)),
        (Noul(None, None, "near"), (0.0, 1.0)),
    ],
)
def test_the_surest_readings_are_distributions_still(question, expected):
    sure = EmbeddedModel(on_a_circle, Profile(1e6, 0.0, 1e6, 0.0, 1e6, 1e6, 0.0), "sure")

    assert one(sure, "state", question).probabilities == expected


# Directions, on texts that leave no doubt


@pytest.mark.parametrize(
    ("state", "question", "expected"),
    [
        ("My card was charged twice.", CHOICE, 0),
        ("The app crashes when I open it, with a technical error.", CHOICE, 1),
        ("Do you have any offers or discounts on sale?", CHOICE, 2),
        ("The river flooded the valley.", Choice(None, ("cooking", "natural disaster"), (None, None)), 1),
        ("Whisk the eggs with sugar.", Choice(None, ("cooking", "natural disaster"), (None, None)), 0),
        (
            '{"subject":"Cannot log in","body":"The password is wrong every time."}',
            Choice(None, ("billing", "login problem", "shipping"), (None, None, None)),
            1,
        ),
    ],
)
def test_the_option_that_a_text_is_about_wins(model, state, question, expected):
    probabilities = one(model, state, question).probabilities

    assert probabilities.index(max(probabilities)) == expected


@pytest.mark.parametrize(
    "question",
    [
        Noul("Is this message about food?", None, None),
        Noul(None, "about food", None),
        Noul(None, None, "about cars and driving"),
        Noul("Is it about food?", "the message is about eating", "the message is about cars"),
        Noul("Is this message about food?", None, "about cars and driving"),
        Noul("Is this message about food?", "it is about food", "it is not about food"),
        Noul("Is this message about food?", None, "it is not about food"),
        Noul(None, "about food", "not about food"),
        Noul("Is this message about food?", "it is about food", "anything else"),
    ],
    ids=[
        "instructions",
        "yes",
        "no",
        "all",
        "instructions-no",
        "yes-denied",
        "denied",
        "sides-denied",
        "anything-else",
    ],
)
def test_a_yes_is_likelier_for_a_text_that_fits_however_the_question_is_put(model, question):
    fits = yes(model, "This restaurant serves the best pasta and pizza in town.", question)
    does_not = yes(model, "The engine of my car broke down on the motorway.", question)

    assert fits > does_not + 0.2


def test_instructions_move_a_choice_in_their_direction(model):
    options = Choice("Which fruit is it?", ("apple, the fruit", "Apple, the company"), (None, None))
    company = Choice("Which computer company is it?", options.options, options.descriptions)

    fruit_then = one(model, "apple", options).probabilities[0]
    fruit_now = one(model, "apple", company).probabilities[0]

    assert fruit_then > fruit_now


def test_a_description_moves_a_choice_in_its_direction(model):
    bare = Choice(None, ("team one", "team two"), (None, None))
    described = Choice(None, ("team one", "team two"), ("invoices and payments", "passwords"))

    before, after = (one(model, "My invoice is wrong.", question) for question in (bare, described))

    assert after.probabilities[0] > max(0.9, before.probabilities[0])


# What an item costs


@pytest.mark.parametrize("state", ["", "word", "word " * 50, "word " * 5_000])
def test_an_item_costs_about_as_many_tokens_as_are_read(model, state):
    item = Item(state, CHOICE)

    assert 0 < model.cost(item) <= MAX_TOKENS + 16
    assert model.cost(item) == pytest.approx(one(model, state).input_tokens, abs=20)
