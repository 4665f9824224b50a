"""A change finds its function and its place by what the code does, not by how it is written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.simulation.mutants.changes import NoPlaceError, Rewrite, Setting

CODE = '''
LIMIT = 3

class Till:
    def pay(self, sum):
        """Pay."""
        if sum > LIMIT:  # too much
            raise ValueError(sum)
        self.write({"sum": sum, "paid": True}, unless=self.closed, tries=2)
        note("paid", sum=sum)
        done()

    def close(self):
        self.write({}, unless=self.closed)
'''


@pytest.fixture(name="root")
def a_package(tmp_path: Path) -> Path:
    home = tmp_path / "libs/shop/src/shop"
    home.mkdir(parents=True)
    (home / "till.py").write_text(CODE)
    (home / "other.py").write_text("def close():\n    pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("where", "old", "new", "before", "after"),
    [
        ("shop:pay", "sum > X", "sum >= X", "sum > LIMIT", "sum >= LIMIT"),
        ("shop:Till.pay", "X(sum)", "X(None)", "ValueError(sum)", "ValueError(None)"),
        ("shop.till:LIMIT", "3", "4", "LIMIT = 3", "LIMIT = 4"),
        ("shop:Till.close", "self.write(..., unless=X)", "self.write(...)", "({}, unless=self.closed)", "({})"),
        ("shop:pay", '{"paid": X, **...}', "{**...}", "{'sum': sum, 'paid': True}", "{'sum': sum}"),
        ("shop:pay", "note(...)\ndone()", "done()\nnote(...)", None, "done()\n        note('paid', sum=sum)"),
        ("shop:pay", "if X:\n    ...", "while X:\n    ...", "if sum", "while sum"),
    ],
)
def test_a_rewrite_changes_one_place(
    root: Path, where: str, old: str, new: str, before: str | None, after: str
) -> None:
    path, text = Rewrite(where, old, new).apply(root)
    assert path.name == "till.py"
    assert after in text
    assert before is None or before not in text
    assert text.count("\n") == ast.unparse(ast.parse(CODE)).count("\n")


def test_arguments_by_name_may_have_any_order(root: Path) -> None:
    _, text = Rewrite("shop:pay", "self.write(..., tries=X, unless=Y)", "self.write(..., tries=Y)").apply(root)
    assert "self.write({'sum': sum, 'paid': True}, tries=self.closed)" in text


def test_a_change_with_no_place_or_several_is_an_error(root: Path) -> None:
    with pytest.raises(NoPlaceError, match="defined 2 times"):
        Rewrite("shop:close", "X", "None").apply(root)
    with pytest.raises(NoPlaceError, match="defined 0 times, not once: nowhere"):
        Rewrite("shop:open", "X", "None").apply(root)
    with pytest.raises(NoPlaceError, match=r"till\.py has 0 times"):
        Rewrite("shop:pay", "sum < X", "True").apply(root)
    with pytest.raises(NoPlaceError, match=r"till\.py has [2-9] times"):
        Rewrite("shop:pay", "sum", "None").apply(root)


def test_a_setting_changes_one_value(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text('{"States": [{"Next": "End", "Retry": 1}]}')
    path, text = Setting("machine.json", ("States", "0", "Next"), "Start").apply(tmp_path)
    assert (path.name, '"Next": "Start"' in text) == ("machine.json", True)
    assert "Retry" not in Setting("machine.json", ("States", "0", "Retry"), None).apply(tmp_path)[1]
    for keys in (("States", "1", "Next"), ("States", "0", "Catch")):
        with pytest.raises(NoPlaceError, match="nothing to change"):
            Setting("machine.json", keys, None).apply(tmp_path)
