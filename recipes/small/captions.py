"""What a person would type for a caption: the sentence, its beginning, or a noun phrase of it. Rules, no parser."""

import random
import re


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


PREPOSITIONS = word_set(
    "about above across against along alongside amid among around at atop before behind below beneath beside "
    "between by down during for from in inside into near of off on onto out outside over past through to toward "
    "towards under underneath up upon while with within without as like next and or but that which who whose where "
    "there it its his her their he she they then than because so other another each some"
)
VERBS = word_set(
    "is are was were be been being has have had having do does can sit sits sat stand stands stood lay lays lie "
    "lies ride rides play plays hold holds walk walks run runs look looks wear wears eat eats show shows hang hangs "
    "jump jumps fly flies get gets go goes make makes take takes use uses swing swings prepare prepares ready drive "
    "drives throw throws catch catches hit hits pose poses surf surfs ski skis skate skates watch watches parked "
    "seated filled covered made topped set surrounded mounted attached decorated stacked placed lined hanging"
)
ARTICLES = word_set("a an the this these those one two three four five six several many few lots group bunch pair")
NOUNS_IN_ING = word_set(
    "building ceiling wedding evening morning clothing painting string king ring wing spring railing living dining "
    "parking awning crossing thing something anything nothing everything"
)
EMPTY = word_set("top side front back middle edge image picture photo view close group bunch pair lot couple")


def words_of(caption: str) -> list[str]:
    """Lower-case words; punctuation ends a phrase, so it stays as a word of its own."""
    return re.findall(r"[a-z0-9'-]+|[,.;:!?]", caption.lower())


def phrases(caption: str) -> list[str]:
    """Noun phrases of up to four words, with and without a leading verb in -ing.

    >>> phrases("A man riding a wave on top of a yellow surfboard.")
    ['a man', 'a wave', 'riding a wave', 'a yellow surfboard']
    """
    found: list[str] = []
    verb, noun = "", list[str]()

    def close() -> None:
        nonlocal verb, noun
        content = [word for word in noun if word not in ARTICLES]
        if content and len(noun) <= 4 and content[-1] not in EMPTY and len(content[-1]) > 2:
            found.append(" ".join(noun))
            if verb:
                found.append(f"{verb} {found[-1]}")
        verb, noun = "", []

    for word in [*words_of(caption), "."]:
        is_verb = word in VERBS or (word.endswith("ing") and word not in NOUNS_IN_ING)
        if is_verb and not (noun and noun[-1] in ARTICLES):
            close()
            verb = word if word.endswith("ing") else ""
        elif not word[0].isalnum() or word in PREPOSITIONS:
            close()
        else:
            if word in ARTICLES and noun:
                close()
            noun.append(word)
    return found


def shortened(caption: str, rng: random.Random) -> str:
    """The caption up to one of its prepositions, at least three words; the whole one where there is none."""
    words = words_of(caption)
    ends = [place for place, word in enumerate(words) if place >= 3 and (word in PREPOSITIONS or word in ",.;")]
    return " ".join(words[: rng.choice(ends)]) if ends else " ".join(words)
