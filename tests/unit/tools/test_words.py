"""Prose of the code: which text counts, and which constructions are found in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import CONSTRUCTIONS, Sentence, main, per_thousand, sentences

SOURCE = '''"""A queue: it keeps what waits.

In: frames. Out: the same frames, `put` first.

    FULL ──► EMPTY
"""

# Nobody waits behind it
# for longer than a turn.
LIMIT = 4  # frames that are told apart


class Queue:
    """A queue of frames.

    Args:
        limit: how many frames it takes.
    """

    size: int
    """Its size now."""
'''


def test_docstrings_comments_and_notes_of_attributes_are_sentences() -> None:
    """Comments on neighbouring lines are one text; drawings, headings, labels and code are no part of it."""
    assert sorted(sentences(SOURCE)) == sorted(
        [
            Sentence("A queue: it keeps what waits.", 1),
            Sentence("frames. the same frames, CODE first.", 1),
            Sentence("Nobody waits behind it for longer than a turn.", 8),
            Sentence("frames that are told apart", 10),
            Sentence("A queue of frames.", 14),
            Sentence("how many frames it takes.", 14),
            Sentence("Its size now.", 21),
        ]
    )


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("colon", "A gate: it opens. Args: none. At 12:30 nothing.", 2),
        ("that-is", "A page that is gone, and one that has left.", 2),
        ("nobody", "Whose turn it is, nobody knows.", 2),
        ("tell", "It tells what it was told; retelling does not count.", 2),
        ("anew", "Each begins anew, with a clock of its own.", 2),
        ("behind", "The state behind a step.", 1),
    ],
)
def test_a_construction_is_counted_each_time(name: str, text: str, count: int) -> None:
    """The figure is the number in 1,000 sentences, so that one sentence with two of them has 2,000."""
    construction = {each.name: each for each in CONSTRUCTIONS}[name]
    assert per_thousand([Sentence(text, 1)], construction) == 1000 * count
    assert per_thousand([], construction) == 0


def test_sentences_with_a_construction_are_shown_with_their_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name is refused with those that there are."""
    path = tmp_path / "queue.py"
    path.write_text(SOURCE)
    assert main(["--lines", "behind", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{path}:8: Nobody waits behind it for longer than a turn.\n"
    assert main(["--lines", "semicolon", str(path)]) == 2
    assert "there are colon, that-is" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_construction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what other libraries have."""
    (tmp_path / "queue.py").write_text(SOURCE)
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "7 sentences"
    assert "| behind | 143 | 2, 0, 1 |" in lines
