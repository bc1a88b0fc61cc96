"""Product titles, graded by rules alone: nobody has written down the right one. A row's columns are the arguments."""

BANNED = ("best", "cheap", "amazing", "perfect", "free", "!")


def title_rules(completion: str, brand: str, colour: str, longest: int = 60) -> dict[str, bool]:
    """One point for each rule that the title keeps; each is logged as a component, and they add up to the reward."""
    title = completion.strip()
    words = title.lower()
    return {
        "length": 10 <= len(title) <= longest and "\n" not in title,
        "brand": brand.lower() in words,
        "colour": colour.lower() in words,
        "claims": not any(word in words for word in BANNED),
        "capitals": not title.isupper(),
    }
