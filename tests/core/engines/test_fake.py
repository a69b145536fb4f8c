"""What the engine for tests does on request."""

from core.contract.questions import Noul
from core.engines.base import Item
from core.engines.fake import FakeEngine

QUESTION = Noul("Is a refund due?", None, None)
ONE, OTHER = Item("one", QUESTION), Item("other", QUESTION)


async def test_a_steady_engine_answers_alike_whenever_it_is_asked():
    assert await FakeEngine().answer([ONE]) == await FakeEngine().answer([ONE])


async def test_a_fickle_engine_never_answers_alike_and_says_so():
    engine = FakeEngine(fickle=True)

    assert await engine.answer([ONE]) != await engine.answer([ONE])
    assert not engine.batch_invariant


async def test_engines_with_one_file_leave_a_line_for_each_item_in_it(tmp_path):
    path = tmp_path / "runs"
    here, there = FakeEngine(runs_file=str(path)), FakeEngine(seed=1, runs_file=str(path))

    await here.answer([ONE, OTHER])
    await there.answer([ONE])

    one, other, again = path.read_text().split()
    assert one == again
    assert other != one


async def test_no_text_of_a_request_is_in_that_file(tmp_path):
    path = tmp_path / "runs"

    await FakeEngine(runs_file=str(path)).answer([ONE])

    assert "one" not in path.read_text()
