"""What counts as the same question."""

import pytest

from gapo_lit.prompts.words import normalised, words

SAME = [
    ("What is $2+3$?", "what  is\n2 + 3"),
    (r"Compute \(\dfrac{1}{2}\).", r"compute $\frac{1}{2}$"),
    (r"Let $a \leq b$, $c \ldots d$", r"Let \(a\le b\), \(c\cdots d\)"),
    (r"$\left( 3,\, 4 \right)$", "$(3, 4)$"),
    (r"It costs \$1{,}000", "It costs $1,000"),
    (r"\text{Find } x^{10}", "find $x^10$"),
    ("Farmers’ “market” − open…", 'farmers\' "market" - open...'),
    ("Evaluate $f(2)$; then stop.", "Evaluate f(2), then stop"),
]
OTHER = [
    ("What is 2 + 3?", "What is 2 - 3?"),
    ("What is (2 + 3) * 4?", "What is 2 + (3 * 4)?"),
    ("2.5", "25"),
    ("$x=.5$", "$x=5$"),
    ("1,2", "12"),
    ("ratio 3:4", "ratio 34"),
    (r"\frac{1}{23}", r"\frac{12}{3}"),
    ("5!", "5"),
    ("$f'(2)$", "$f(2)$"),
    ("5²", "52"),
    ("x^2", "x2"),
    ("[0, 1)", "(0, 1)"),
    ("|x|", "x"),
    ("??", "!?"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spacing_case_and_typesetting_do_not_count(one, two):
    assert words(one) == words(two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_what_changes_the_meaning_counts(one, two):
    assert normalised(one) != normalised(two)


def test_every_question_has_a_word():
    for text in ("?", "...", "∑", "你好", "\\", "$$"):
        assert words(text), text
