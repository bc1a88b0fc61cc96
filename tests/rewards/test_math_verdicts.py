"""Verdicts one by one, in this process: what counts as an answer, and as an equal one."""

import pytest

from gapo_lit.rewards.math_worker import Patience, _answer, judge

VERDICTS = [  # gold, whole completion, right
    ("5", r"\boxed{4=5}", False),
    ("5", r"\boxed{5=4}", False),
    ("5", r"\boxed{2+3=5}", True),
    ("5", r"\boxed{x=2+3=5}", True),
    ("5", r"\boxed{x=4=5}", False),
    ("5", r"\boxed{x-1=5}", False),
    ("5", r"\boxed{2x=5}", False),
    ("5", r"\boxed{x+y=5}", True),
    ("5", r"\boxed{f(2)=5}", True),
    ("5", r"\boxed{x^2=5}", False),
    ("x=5", r"\boxed{y=5}", False),
    ("x=5", r"\boxed{4=5}", False),
    ("5", r"\boxed{5 \approx 6}", False),
    ("3", r"\boxed{3 \approx 4}", False),
    (r"\pi", r"\boxed{\pi \approx 3.14}", True),
    ("3.14", r"\boxed{x \approx 3.14}", True),
    ("3", "the answer is not 3", False),
    ("3", "The answer isn't 3.", False),
    ("3", "the answer is between 3 and 4", False),
    ("3", "The answer is either 3 or 4.", False),
    ("3", "the answer is 3 or 4", False),
    ("3", "The answer is at least 3", False),
    ("3", "The answer is 3 apples or 4 apples.", False),
    ("3", "I am sure x is not 3", False),
    ("3", "It is 3 or 4", False),
    ("3", "it lies between 2 and 3", False),
    ("3", "The answer cannot be 3.", False),
    ("3", "The answer is less than 3", False),
    ("3", "The answer is 3? No.", False),
    ("4", "The answer is 3? No, it is 4.", True),
    ("3", "The answer is 3, 4, or 5", False),
    ("3", "The answer is 3 to 4", False),
    ("3", r"\boxed{\text{not } 3}", False),
    ("3", r"\boxed{3\text{ or maybe 4}}", False),
    ("3", r"\boxed{3\text{ or }4}", False),
    ("3", r"\boxed{x\neq 3}", False),
    ("3", r"\boxed{x>3}", False),
    ("3", r"\boxed{\neq 3}", False),
    ("3", r"\boxed{1,2,3,4}", False),
    ("3", r"\boxed{3?}", False),
    ("abc", r"\boxed{cab}", False),
    ("even", r"\boxed{nev e}", False),
    (r"\text{even}", r"\boxed{neve}", False),
    ("even", r"\boxed{e v e n}", False),
    (r"\text{even}", r"\boxed{\text{Even}}", True),
    ("even", r"\boxed{\text{not even}}", False),
    ("12_8", r"\boxed{12_9}", False),
    ("12_8", r"\boxed{12_{8}}", True),
    ("12_8", r"\boxed{12}", True),
    ("12_8", r"\boxed{10}", False),
    ("x_1", r"\boxed{x_2}", False),
    ("12_8", r"\boxed{(12)_8}", True),
    (r"1011_{\text{two}}", r"\boxed{1011_2}", True),
    ("(1,2)", r"\boxed{\{1,2\}}", False),
    ("(1,2)", r"\boxed{(2,1)}", False),
    ("(1,2)", r"\boxed{[1,2]}", False),
    ("(1,2)", r"\boxed{1,2}", True),
    ("(1,2)", r"\boxed{2,1}", False),
    (r"\{1,2\}", r"\boxed{(1,2)}", False),
    (r"\{1,2\}", r"\boxed{2,1}", True),
    ("[0,1)", r"\boxed{(0,1]}", False),
    ("[0,1)", r"\boxed{\left[0,1\right)}", True),
    ("1,2", r"\boxed{\{2,1\}}", True),
    (r"\$5", r"\boxed{5}", True),
    ("5", r"\boxed{\$5}", True),
    ("1000", r"\boxed{1\,000}", True),
    ("1000", r"\boxed{1{,}000}", True),
    ("1000", r"\boxed{1,000}", True),
    ("1000", r"\boxed{1 000}", True),
    ("i", r"\boxed{\sqrt{-1}}", True),
    ("2i", r"\boxed{\sqrt{-4}}", True),
    ("3", r"so \boxed{3}. Check: \boxed{}", True),
    ("3", r"\boxed{3} which is larger than 2", True),
    ("5", r"so it is \boxed{5", False),
    ("5", r"the answer is 4 or \boxed{5, since 3+2", False),
    ("R-r", r"\boxed{0}", False),
    ("2(3)", r"\boxed{5}", False),
    ("6", r"\boxed{2(3)}", True),
    ("2^{1000}+1", r"\boxed{2^{1000}}", False),
    ("1/3", r"\boxed{0.\overline{3}}", True),
    (r"5\text{ cm}", r"\boxed{5\text{ m}}", False),
    (r"5\text{ cm}", r"\boxed{5}", True),
    ("5", r"\boxed{5 \text{ cm}^2}", True),
    ("5 cm", r"\boxed{5\,\mathrm{cm}}", True),
    (r"50\%", r"\boxed{0.5}", True),
    ("50", r"\boxed{50\%}", True),
    ("0.5", r"\boxed{50\%}", True),
    ("5", r"\boxed{50\%}", False),
    ("5", r"\boxed{5x}", False),
    ("3", r"\boxed{3m}", False),
    ("(C)", r"\boxed{C}", True),
    (r"\text{(C)}", r"\boxed{\text{C}}", True),
    (r"\text{(C)}", r"\boxed{D}", False),
    ("5", "The answer is 5 million", False),
    ("x>3", r"\boxed{(3,\infty)}", True),
    (r"(2,\infty)", r"\boxed{x>2}", True),
    (r"(-\infty,2)\cup(3,\infty)", r"\boxed{(3,\infty)\cup(-\infty,2)}", True),
    (r"(-\infty,2)\cup(3,\infty)", r"\boxed{(3,\infty)\cup(-\infty,2]}", False),
    (r"x \in [-2,7]", r"\boxed{[-2,7]}", True),
    (r"x \in [-2,7]", r"\boxed{-2 \le x \le 7}", True),
    (r"120 < n \leq 130", r"\boxed{(120,130]}", True),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\boxed{\begin{pmatrix} 1 \\ 3 \end{pmatrix}}", False),
    (r"\begin{pmatrix} 1/2 \\ 2 \end{pmatrix}", r"\boxed{\begin{bmatrix} \frac12 \\ 2 \end{bmatrix}}", True),
    ("f(x)=2x", r"\boxed{2x}", True),
    ("f(x)=2x", r"\boxed{f(x) = x+x}", True),
    ("x^2+y^2=1", r"\boxed{y^2=1-x^2}", True),
    ("x^2+1=0", r"\boxed{x^2+2=0}", False),
    ("xy=1", r"\boxed{y=1/x}", True),
    (r"\binom{2n}{n}", r"\boxed{\frac{(2n)!}{(n!)^2}}", True),
    (r"\sin 30^\circ", r"\boxed{1/2}", True),
    ("0.5", r"\boxed{\sin 30^\circ}", True),
    ("6", r"\boxed{3!}", True),
    ("10", r"\boxed{\sum_{k=1}^{4} k}", True),
    ("(3,4)", r"\boxed{x=3, y=4}", True),
    ("a", r"\boxed{b}", False),
    ("2x+1", r"\boxed{1+2x}", True),
    ("(x+1)^2", r"\boxed{x^2+2x+1}", True),
    ("4", r"\boxed{2^2}", True),
    ("3", r"\boxed{3.0}", True),
    ("3", r"\boxed{3.1}", False),
    ("3", r"\boxed{3;4}", False),
    ("3", "The answer is 3.", True),
    ("72", "The answer is 72 because 48+24=72", True),
    ("72", "So, the answer is 72 clips.", True),
    ("72", r"The answer is: $\boxed{72}$ clips in total", True),
    ("18", "Janet makes $18 every day.\n#### 18", True),
    ("3", "The final answer is 3. I hope it is correct.", True),
    ("10", "Therefore he has 10 apples and 2 pears; 12 fruits. The answer is 10 apples.", True),
    ("5", "not 4, but 5", True),
    ("5", r"\boxed{5, 5}", True),
    ("5", r"\boxed{\text{The answer is } 5}", False),
    ("5", r"\boxed{5 \text{ or more}}", False),
    ("5", r"\boxed{\pm 5}", False),
    ("5", r"\boxed{|{-5}|}", True),
    ("(1,2)", r"\boxed{(x,y)=(1,2)}", True),
    ("3, 4", r"\boxed{x=3 \text{ or } x=4}", True),
    ("3", r"\boxed{x \in \{3\}}", True),
    ("-3", r"\boxed{(-3)}", True),
    ("x", r"\boxed{X}", False),
    ("2x", r"\boxed{2\cdot x}", True),
    ("5", r"\boxed{5 \pmod 7}", False),
    ("7", r"\boxed{7.}", True),
    ("1/2", r"\boxed{\frac{1}{2}\text{ hours}}", True),
    ("AB", r"\boxed{A \cdot B}", True),
    ("0", r"\boxed{1-1}", True),
    ("0", r"\boxed{\sin \pi}", True),
    ("1", r"\boxed{\sin^2 x+\cos^2 x}", False),
    ("12", r"\boxed{1\,2}", False),
    ("12", r"\boxed{1 2}", False),
    ("3:4", r"\boxed{3/4}", True),
    ("true", r"\boxed{True}", True),
    ("no solution", r"\boxed{\text{No solution}}", True),
    ("5", r"\boxed{\approx 5}", False),
    ("12.50", r"\boxed{\$12.50}", True),
    ("3", r"\boxed{3}\boxed{4}", False),
    ("10:30", r"\boxed{10:30}", True),
    ("2^{10}", r"\boxed{1024}", True),
    ("5", r"\boxed{\mathbf{5}}", True),
    ("5", r"\[\boxed{5}\]. Done", True),
    (r"\frac{3}{4}", r"\boxed{\dfrac34}", True),
    ("3", "Answer: 3\n\nWait, not sure", True),
    (r"(0,1)\cup(1,2)", r"\boxed{(0,2)}", False),
    (r"\mathbb{R}", r"\boxed{(-\infty,\infty)}", True),
    ("x<3", r"\boxed{x>3}", False),
    ("x<3", r"\boxed{3>x}", True),
    ("5!", r"\boxed{120}", True),
    ("16", r"\boxed{2^{2^{2}}}", True),
    (r"-\frac{1}{2}", r"\boxed{\frac{-1}{2}}", True),
    (r"\log_2 8", r"\boxed{3}", True),
    (r"\ln 2", r"\boxed{\log 2}", False),
    ("e^2", r"\boxed{7.389056}", True),
    (r"\sqrt{3}", r"\boxed{1.732}", False),
]

COSTLY = [
    r"\binom{1000000}{500000}",
    r"\binom{10^9}{5\cdot 10^8}",
    r"\sum_{n=1}^{10^9} n^n",
    r"\prod_{n=1}^{1000} 9^{9^n}",
    r"\sum_{i=1}^{999}\sum_{j=1}^{999}\sum_{k=1}^{999} 9^{ijk}",
    r"(x+y+z+w)^{5000}",
    r"\int_0^1 e^{x^2}\sin(x^3) dx",
    r"\lim_{x \to 0} \frac{\sin x}{x}",
    r"\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2+\sqrt{2}}}}}",
    r"\sin(\cos(\tan(\sin(\cos(\tan(1))))))",
    r"\sin(9^{9^9})",
    r"e^{e^{e^{e^{10}}}}",
    r"e^{-9^{9^9}}",
    r"((((9!)!)!)!)",
    r"\gcd(9^{9^9}, 3)",
    r"\operatorname{eye}(100000)",
    r"\lfloor 9^{9^{9}}/7 \rfloor",
    r"(9^{9^{9^9}},1)",
    r"x > 9^{9^{9^9}}",
    r"\{9^{9^{9}}\} \cup (0,1)",
    r"x^{99999}+y=2",
    r"y^7 x^5 + \sin(xy) = e^{xy}",
    r"(1+\sqrt{2})^{100000}",
    r"\sqrt{9^{9^9}}",
    r"2^{0.5^{-40}}",
    r"\frac{1}{0}",
    r"0^0",
]

HOSTILE = [
    "().__class__.__mro__",
    r"\operatorname{__import__}(os)",
    r"\operatorname{exec}(1)",
    r"x.__class__(7)",
    "lambda: 7",
    "7\x00\x00 or 1",
    "7\ud800 8",
    "\u202e7 8",
    "{" * 8 + "1",
    r"\begin{pmatrix}" + "1 & " * 300 + r"1\end{pmatrix}",
    r"\sqrt[" * 7 + "7",
    r"\frac{\frac{\frac{\frac{7",
    "1," * 900 + "1",
    r"\pm 1, " * 200,
    "a=b=" * 200 + "1",
    "|" * 50,
]

SAME_TEXT = [
    ("1/2", r"\frac12", "0.5", ".50", r"\dfrac{1}{2}", r"\frac{2}{4}", "x = 1/2"),
    ("1000", "1,000", r"1{,}000", r"1\,000", r"\$1000", "1000.0", r"10^3", "1e3", r"1000 \text{ cm}"),
    ("Even", "even", r"\text{even}", r"\textbf{Even}"),
    (r"2\sqrt{2}", r"\sqrt{8}", r"\sqrt8", r"\frac{4}{\sqrt{2}}"),
    ("(x+1)^2", "x^2 + 2x + 1", "1+2x+x^2"),
    ("1, 2", r"\{2, 1\}", r"2 \text{ and } 1"),
    ("(1, 2)", r"\left( 1,\, 2 \right)"),
    ("2x+4y-3=0", r"3 = 2x + 4y", r"x + 2y = \frac{3}{2}"),
    ("i", r"\sqrt{-1}"),
]


@pytest.mark.parametrize(("gold", "text", "right"), VERDICTS)
def test_verdict(gold, text, right):
    assert judge(gold, text)[0] is right


@pytest.mark.parametrize("answer", COSTLY)
def test_what_would_be_costly_is_incorrect_unevaluated(answer):
    for gold in ("1", "x^2+y=3", "(0,1)", "x > 2"):
        said = _answer({"gold": gold, "text": rf"\boxed{{{answer}}}", "limit": 5.0}, Patience())
        assert said.get("right") is False
    assert judge(answer, rf"\boxed{{{answer}}}")[0]  # unless it is the gold's own text


@pytest.mark.parametrize("answer", HOSTILE)
def test_hostile_answers_are_incorrect(answer):
    for text in (rf"\boxed{{{answer}}}", answer, f"The answer is ${answer}$."):
        said = _answer({"gold": "78", "text": text, "limit": 5.0}, Patience())
        assert said.get("right") is False


def test_a_number_of_100_000_digits_is_evaluated_and_a_longer_one_is_not():
    assert judge("10^{99998}", r"\boxed{2^{99998} \cdot 5^{99998}}")[0]
    assert not judge("10^{99998}+1", r"\boxed{2^{99998} \cdot 5^{99998}}")[0]
    assert not judge("10^{200000}", r"\boxed{100^{100000}}")[0]


@pytest.mark.parametrize("forms", SAME_TEXT)
def test_equal_answers_are_one_text_for_the_vote(forms):
    assert len({judge("7", rf"So \boxed{{{form}}}.")[2] for form in forms}) == 1


def test_different_answers_are_different_texts():
    forms = ("1", "2", "-1", "(1, 2)", "(2, 1)", "1, 2", "[1, 2]", "x", "y", "even", "odd", "12_8", "12_9", r"\sqrt{2}")
    assert len({judge("7", rf"\boxed{{{form}}}")[2] for form in forms}) == len(forms)
    assert judge("7", "")[2] is None


def test_a_batch_that_runs_over_loses_less_time_each_time():
    patience = Patience()
    shares = []
    for i, batch in enumerate("aaab"):
        text = r"\boxed{" + "1+" * (200 + i) + "1}"  # never the same, for what has been read is remembered
        said = _answer({"gold": "1", "text": text, "limit": 1e-6, "batch": batch}, patience)
        assert "processor time" in said["failure"]
        shares.append(patience.share)
    assert shares == [0.5, 0.25, 0.125, 0.5]
