"""The 25 verifiable instructions of IFEval (arXiv:2311.07911, Table 1), each a pure function of a response.

Where the paper leaves a rule open, the function follows the published evaluation program, so that figures compare;
keywords are taken literally. Each takes time linear in the response. Keyword arguments are called as in the data set's
`kwargs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from gapo_lit.rewards.ifeval_text import capital_words, language, sentences

CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
RESPONSE_DIVIDER = "******"
PARAGRAPH_DIVIDER = "***"

# What may follow the text that a prefix ends in can change the last few words or the last sentence of the prefix.
_FIRST_LOOK = 4_000
_UNSURE = 4


def compare(count: int, relation: str, threshold: int) -> bool:
    """Whether count stands in the relation, "at least" or "less than", to the threshold."""
    return (count >= threshold) == (relation == "at least")


def keywords_exist(response: str, *, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in any case, also inside words."""
    return all(re.search(re.escape(keyword), response, re.IGNORECASE) for keyword in keywords)


def keyword_frequency(response: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs at least, or less than, `frequency` times, in any case, also inside words."""
    found = re.finditer(re.escape(keyword.strip()), response, re.IGNORECASE)
    return compare(sum(1 for _ in found), relation, frequency)


def no_forbidden_words(response: str, *, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a whole word, in any case."""
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(response: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """The character occurs at least, or less than, `let_frequency` times, in either case."""
    return compare(response.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(response: str, *, language: str) -> bool:
    """The response is in the language, or has no letters to tell by."""
    return _in_language(response, language)


def number_of_sentences(response: str, *, num_sentences: int, relation: str) -> bool:
    """At least, or less than, `num_sentences` sentences."""
    return compare(_counted(response, lambda text: len(sentences(text)), num_sentences), relation, num_sentences)


def number_of_words(response: str, *, num_words: int, relation: str) -> bool:
    """At least, or less than, `num_words` runs of letters, digits and underscores."""
    return compare(sum(1 for _ in re.finditer(r"\w+", response)), relation, num_words)


def number_of_paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs between dividers ***, none of them blank; a divider may open or close the response."""
    paragraphs = _parts_between(response, PARAGRAPH_DIVIDER)
    return paragraphs is not None and len(paragraphs) == num_paragraphs


def nth_paragraph_first_word(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs between blank lines, the nth of them beginning with the word, in any case.

    Blank paragraphs do not count towards the number but do towards the nth, as in the published program.
    """
    paragraphs = response.split("\n\n")
    if sum(bool(p.strip()) for p in paragraphs) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    opening = words[0].lstrip("'").lstrip('"')
    return re.split(r"[.,?!'\"]", opening, maxsplit=1)[0].lower() == first_word.lower()


def postscript(response: str, *, postscript_marker: str) -> bool:
    """The marker occurs, in any case; "P.S." and "P.P.S" also with blanks after their periods."""
    pattern = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}.get(postscript_marker)
    return re.search(pattern or re.escape(postscript_marker.lower()), response.lower()) is not None


def number_of_placeholders(response: str, *, num_placeholders: int) -> bool:
    """At least so many [placeholders] within a line."""
    # An opening bracket that nothing closes takes the rest of its line with it, so that no part is read twice.
    return re.findall(r"\[[^\]\n]*(\]?)", response).count("]") >= num_placeholders


def number_of_bullets(response: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that begin with * (not **) or -, blanks aside."""
    stars = re.findall(r"^[^\S\n]*\*[^*].*$", response, re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", response, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


def number_of_highlights(response: str, *, num_highlights: int) -> bool:
    """At least so many stretches between *asterisks*, or **pairs** of them, within a line and not blank."""
    single = re.findall(r"\*([^\n*]*)\*", response)
    double = re.findall(r"\*\*([^\n*]*)\*\*", response)
    return sum(bool(text.strip()) for text in single + double) >= num_highlights


def multiple_sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many section marks, a mark being the splitter and a number."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", response)) >= num_sections


def title(response: str) -> bool:
    """A <<title>> within a line that is not blank."""
    return any(_titled(line) for line in response.split("\n"))


def json_format(response: str) -> bool:
    """The whole response is JSON, in a code fence or not; nesting too deep to be read is none."""
    text = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def constrained_response(response: str) -> bool:
    """One of the three answers allowed occurs."""
    return any(answer in response for answer in CONSTRAINED_RESPONSES)


def two_responses(response: str) -> bool:
    """Two different texts with ****** between them."""
    parts = _parts_between(response, RESPONSE_DIVIDER)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    """The response begins with the prompt, in any case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(response: str, *, end_phrase: str) -> bool:
    """The response ends with the phrase, in any case, a closing double quote aside."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(response: str) -> bool:
    """The whole response stands in double quotes."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def capital_word_frequency(response: str, *, capital_frequency: int, capital_relation: str) -> bool:
    """At least, or less than, so many words in capitals."""
    return compare(_counted(response, capital_words, capital_frequency), capital_relation, capital_frequency)


def english_capital(response: str) -> bool:
    """English, without a small letter."""
    return response.isupper() and _in_language(response, "en")


def english_lowercase(response: str) -> bool:
    """English, without a capital letter."""
    return response.islower() and _in_language(response, "en")


def no_comma(response: str) -> bool:
    """No comma."""
    return "," not in response


def _in_language(response: str, code: str) -> bool:
    return language(response) in (code, None)


def _counted(response: str, count: Callable[[str], int], threshold: int) -> int:
    """The count, or one above the threshold as soon as the beginning of a long response shows that it is."""
    size = _FIRST_LOOK
    while size < len(response):
        seen = count(response[:size]) - _UNSURE
        if seen >= threshold:
            return seen
        size *= 4
    return count(response)


def _parts_between(response: str, divider: str) -> list[str] | None:
    """The stripped texts between dividers, blank ones left out at both ends; None where one elsewhere is blank."""
    parts = [part.strip() for part in response.split(divider)]
    if not all(parts[1:-1]):
        return None
    return [part for part in parts if part]


def _titled(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())
