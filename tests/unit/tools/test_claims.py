"""A promise names the tests that prove it, and they are there."""

import pytest

from tools.claims import PAGE, claims, faults, main

# A test that exists, in Python and in JavaScript.
HERE = "`tests/unit/tools/test_claims.py::test_each_claim_of_the_page_names_tests_that_exist`"
THERE = "`web/test/no-silent-loss.test.js::whatever happens, an event`"


def test_each_claim_of_the_page_names_tests_that_exist() -> None:
    """`make docs-check` says so too."""
    assert main() == 0
    assert len(list(claims(PAGE.read_text("utf-8")))) > 60


@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ("It is fast.", []),
        ("It is fast. It never waits. It is small.", ["It never waits."]),
        ("*It is small,\nand always fast.*[^a] It is free.", ["*It is small, and always fast.*[^a]"]),
        ("It keeps 64 of them[^a].\n\n## 3. In 5 parts", ["It keeps 64 of them[^a]."]),
        ("It is gone within ten seconds.", ["It is gone within ten seconds."]),
        ("Names: SHA-256, F25, `queue 64`, section 3, promises 1 and 2, [decision 34](decisions/0034.md).", []),
        ("- It is one.\n- It is every\n  one.\n- It is three.", ["It is every one.", "It is three."]),
        ("1. It is.\n2. It never is.\n\n```sh\nnever 5\n```", ["It never is."]),
        (
            "| what | limit 1 |\n|---|---|\n| queue | 256[^a] | never. Full |\n| lane | small |",
            ["| queue | 256[^a] | never. Full |"],
        ),
        (f"[^a]: {HERE}, {THERE}\n[^b]: 7,\n    {HERE}", []),
    ],
)
def test_a_claim_is_a_sentence_or_a_row_with_such_a_word_or_a_number(text: str, claimed: list[str]) -> None:
    """Headings, definitions, code and the numbers of names claim nothing."""
    assert list(claims(text)) == claimed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"It never waits.[^a] It is exactly so.[^b]\n\n[^a]: {HERE}\n[^b]: as seen in\n    {THERE}", []),
        (f"It never waits. It is so.[^a]\n\n[^a]: {HERE}", ["no test is named: It never waits."]),
        ("It never waits.[^a]", ["[^a] is used and not defined"]),
        (f"It is so.\n\n[^a]: {HERE}", ["[^a] is defined and not used"]),
        (f"It is so.[^a]\n\n[^a]: {HERE}\n[^a]: {THERE}", ["[^a] is defined twice"]),
        ("It is so.[^a]\n\n[^a]: `tests/unit`", ["[^a] names no test as `path::name`"]),
        ("It is so.[^a]\n\n[^a]: `tools/claims.py::main`", ["[^a]: there is no tools/claims.py::main"]),
        ("It is so.[^a]\n\n[^a]: `tests/gone.py::test_gone`", ["[^a]: there is no tests/gone.py::test_gone"]),
        (f"It is so.[^a]\n\n[^a]: {HERE[:-2]}`", [f"[^a]: there is no {HERE[1:-2]}"]),
        (f"It is so.[^a]\n\n[^a]: {THERE[:-2]}`", [f"[^a]: there is no {THERE[1:-2]}"]),
    ],
)
def test_what_is_wrong_is_told(text: str, told: list[str]) -> None:
    """A claim without a test, a footnote without a definition, a test that was renamed or deleted."""
    assert list(faults(text)) == told
