"""Finding by what is said and written: words to FTS5 expressions, lines to hits, and both kinds of hits in one list.

A line counts by the share of the query's words that it has; words that follow in the lines just after count too, since
subtitles cut sentences. That share, less where many videos have as much, is a confidence as those of
:class:`~centerclip.search.ranking.Calibration`: a share of what there is that a hit beats. So the two lists are merged
on one scale, by the greater of the two. Reciprocal ranks, which need no scale, were measured to be worse
(``benchmarks/text_search.py``): a list of hits that are all wrong counts there as much as one with the answer.
"""

import re
import sqlite3
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, islice

import numpy as np

from ..video.subtitles import Line
from .ranking import MAX_MOMENTS, Moment, Ranked, grade
from .store import Among, LineHit, View

FIRST_LINES = 1_000  # lines asked for at first; more when they belong to too few videos
MOST_LINES = 5_000
NEAR_SECONDS = 6.0  # lines whose starts are so near may share the words of a query
SPREAD = 0.95  # what words count that are spread over several lines
MAX_WORDS = 32  # of a query; more would be a page of text
SAME_SECONDS = 1.0  # a line at the same time in videos of the same length: one is a copy of the other
MIN_SHARE = 0.55  # of the words, for a line to be a hit beside those of the video: more than one of two
FULL_SHARE = 0.9  # of the words, that counts as all of them: one inflected word of two
INFLECTED = 0.8  # what a word counts that only begins alike: bridge, bridges
MIN_STEM, MAX_ENDING = 4, 3  # letters that inflected words have in common, and those that may follow
ENDINGS = ("ing", "ed", "es", "s")  # of English words; other languages mostly add letters, which the prefix covers

NO_VECTOR = np.zeros(0, np.float32)
WHOLE = ("title", "description", "name")  # about the whole video: no moment

# Words that nearly every line has. They count only in a query of nothing else, or inside quotes.
COMMON = (
    "a an and are as at be but by for from had has have he her his i in is it its me my no not of on or our she so",
    "that the their them then there they this to was we were what when where which who will with you your",
)
STOP_WORDS = frozenset(word for line in COMMON for word in line.split())
# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Chinese characters of all planes.
UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff])"
)
WORD = re.compile(r"[^\W_]+")
PIECE = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})[^\W_][\u0300-\u036f]*)+")  # of a text as it stands
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
PARTS = re.compile(r'["“”„«»]([^"“”„«»]*)["“”„«»]|(\S+)')


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared: lower case, without accents; of scripts without spaces, letters."""
    letters = unicodedata.normalize(
        "NFKD", unicodedata.normalize("NFKD", text).lower()
    )  # twice: letters for mathematics have none that are small
    # Marks of scripts without spaces are vowels, not accents.
    bare = "".join(each for each in letters if unicodedata.category(each) != "Mn" or UNSPACED.match(each))
    bare = unicodedata.normalize("NFC", bare)  # Korean syllables and kana as one letter again
    return [word for part in UNSPACED.split(bare) for word in ([part] if UNSPACED.match(part) else WORD.findall(part))]


def index_text(text: str) -> str:
    """A text as the full-text index gets it: the words of :func:`words_of` with spaces between."""
    return " ".join(words_of(text))


def index_name(path: str) -> str:
    """Folders and name of a file for the full-text index, without its suffix: ``BirthdayParty2019`` is three words."""
    stem = re.sub(r"\.[A-Za-z0-9]{1,5}$", "", path)
    return " ".join(dict.fromkeys([*words_of(stem), *words_of(CAMEL.sub(" ", stem))]))


def match_texts(match: str, texts: Iterable[str]) -> list[tuple[int, float]]:
    """Place and rank (less is better) of a few texts that match an FTS5 expression, best first."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')")
        connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", enumerate(texts))
        found = connection.execute("SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank", (match,))
        return found.fetchall()


def stems_of(words: str) -> str:
    """What the words of an indexed text begin with, for a full-text index that finds whole words only."""
    return " ".join(dict.fromkeys(filter(None, (Term((word,)).stem for word in words.split()))))


@dataclass(frozen=True)
class Term:
    """A word of a query, or several that have to follow each other.

    Attributes:
        words: as :func:`words_of` gives them.
        prefix: the last one may go on: ``zep*``.
        quoted: it was in quotes, and has to be there.
    """

    words: tuple[str, ...]
    prefix: bool = False
    quoted: bool = False

    @property
    def stem(self) -> str:
        """What words of the same kind begin with; empty where only the word itself counts."""
        word = self.words[-1]
        if self.quoted or len(self.words) > 1 or not word.isalpha():
            return ""
        stems = (word.removesuffix(ending) for ending in ENDINGS)
        stem = next((each for each in stems if each != word and len(each) >= MIN_STEM), word)
        return stem if len(stem) >= MIN_STEM else ""

    @property
    def expression(self) -> str:
        """As FTS5 reads it. Words are letters and digits only, and in quotes: nothing in them is an operator."""
        if self.prefix:
            return f'"{" ".join(self.words)}"*'
        exact = f'"{" ".join(self.words)}"'
        return f'({exact} OR "{self.stem}"*)' if self.stem else exact

    def share_in(self, words: Sequence[str]) -> float:
        """How well a line has it, 0 to 1."""
        return max((self.share_at(words, at) for at in range(len(words) - len(self.words) + 1)), default=0.0)

    def share_at(self, words: Sequence[str], at: int) -> float:
        """How well the words of a line from ``at`` on are this, 0 to 1."""
        here = tuple(words[at : at + len(self.words)])
        if here == self.words:
            return 1.0
        if len(here) == len(self.words) and here[:-1] == self.words[:-1]:
            if self.prefix and here[-1].startswith(self.words[-1]):
                return 1.0
            if self.stem and here[-1].startswith(self.stem) and len(here[-1]) <= len(self.stem) + MAX_ENDING:
                return INFLECTED
        return 0.0


def terms_of(query: str) -> list[Term]:
    """What is searched for in a query: words in quotes as they are, of the rest those that say something."""
    terms: list[Term] = []
    for match in PARTS.finditer(query):
        quoted, typed = match.group(1), match.group(2)
        if words := tuple(words_of(quoted if quoted is not None else typed)):
            terms.append(Term(words, typed is not None and typed.endswith("*"), quoted is not None))
    telling = [term for term in terms if term.quoted or term.prefix or not STOP_WORDS.issuperset(term.words)]
    return list(dict.fromkeys(telling or terms))[:MAX_WORDS]


def marks_in(text: str, query: str) -> list[tuple[int, int]]:
    """First and last place, in letters, of the words in a text for which a query finds it; to highlight them."""
    places = [(word, *piece.span()) for piece in PIECE.finditer(text) for word in words_of(piece.group())]
    words, marked = [word for word, _, _ in places], [False] * len(places)
    for term in terms_of(query):
        for at in range(len(words)):
            if term.share_at(words, at):
                marked[at : at + len(term.words)] = [True] * len(term.words)
    marks: list[tuple[int, int]] = []
    for (_, start, end), mark in zip(places, marked, strict=True):
        gap = text[marks[-1][1] : start] if marks else "..."
        if mark and (len(gap) <= 1 or gap.isspace()):  # side by side they are one: can't stop
            marks[-1] = (marks[-1][0], end)
        elif mark:
            marks.append((start, end))
    return marks


def match_expression(query: str | Sequence[Term], *, every: bool = False) -> str | None:
    """An FTS5 expression for a query as people type it; None when there is no word in it.

    Args:
        query: any text, or its terms. What is in quotes has to be in a line; of the other words one is enough.
        every: all words have to be there.
    """
    terms = terms_of(query) if isinstance(query, str) else query
    if not terms:
        return None
    required = [term.expression for term in terms if every or term.quoted]
    # The words that need not be there are part of the expression even so, because they count in its rank.
    anyhow = "(" + " OR ".join(term.expression for term in terms) + ")"
    return " AND ".join([*required, anyhow])


@dataclass(frozen=True)
class _Scored:
    """A line with its score; of two that have the same words, the one with them in order comes first, then by BM25."""

    video: str
    line: Line
    score: float
    in_order: bool
    rank: float

    @property
    def key(self) -> tuple[float, bool, float]:
        return -self.score, not self.in_order, self.rank

    @property
    def moment(self) -> Moment:
        return Moment(self.line.start, self.line.end, self.score)


def search_text(
    view: View,
    query: str,
    top: int,
    *,
    among: Among = None,
    by_moment: bool = False,
    collapse: bool = True,
    min_score: float = 0.0,
) -> list[Ranked]:
    """The videos, or with ``by_moment`` the lines, that have words of a query, best first.

    The name of a file counts, together with the folders that it is in, when it has all of the words. The arguments are
    those of :func:`~centerclip.search.ranking.rank`, but for the query, which is what was typed. A score is the share
    of the query's words that the line has; it is "sure" with all of them.
    """
    terms = terms_of(query)
    match, match_all = match_expression(terms), match_expression(terms, every=True)
    if match is None or match_all is None or top < 1:
        return []
    by_video: dict[str, list[_Scored]] = {}
    for wanted in (FIRST_LINES, MOST_LINES) if view.has_lines else ():
        lines = view.search_lines(match, wanted, among=among)
        by_video = _score_lines(terms, words_of(query), lines)
        if len(lines) < wanted or len(by_video) >= top:
            break
    names = view.search_names(match_all, FIRST_LINES, among=among)
    named = view.with_files({video for _, video, _ in names})
    for path, video, rank in names:
        if video in named:  # it may have gone meanwhile
            line = Line(0.0, named[video][0].duration, path.replace("\\", "/").rpartition("/")[2], "name")
            by_video.setdefault(video, []).append(_Scored(video, line, 1.0, False, rank))
    hits: list[tuple[_Scored, tuple[Moment, ...]]] = []
    for scored in by_video.values():
        best = sorted(scored, key=lambda each: each.key)[:MAX_MOMENTS]
        moments = tuple(each.moment for each in best if each.line.source not in WHOLE or each is best[0])
        hits += [(each, (each.moment,)) for each in best] if by_moment else [(best[0], moments)]
    hits = sorted((hit for hit in hits if hit[0].score >= min_score), key=lambda hit: hit[0].key)
    bests = sorted(min(each.key for each in scored)[0] for scored in by_video.values())  # negative scores
    kept, chosen = list[_Scored](), list[Ranked]()
    for each, moments in hits:
        same = next((n for n, other in enumerate(kept) if collapse and _is_copy(view, other, each)), None)
        if same is not None:
            chosen[same] = replace(chosen[same], duplicates=(*chosen[same].duplicates, each.video))
        elif len(chosen) < top:
            kept.append(each)
            chosen.append(_graded(each, moments, bests, len(view.videos)))
        else:
            break
    return chosen


def _is_copy(view: View, one: _Scored, other: _Scored) -> bool:
    """Whether two lines are one, in two encodings of a video."""
    return (
        one.line.text == other.line.text
        and one.video != other.video
        and one.line.source not in WHOLE
        and abs(one.line.start - other.line.start) < SAME_SECONDS
        and abs(view.videos[one.video].duration - view.videos[other.video].duration) < SAME_SECONDS
    )


def _score_lines(terms: Sequence[Term], query: Sequence[str], hits: Sequence[LineHit]) -> dict[str, list[_Scored]]:
    """The lines of each video with their scores; words may be spread over lines that follow each other."""
    by_video: dict[str, list[tuple[LineHit, list[str], list[float]]]] = defaultdict(list)
    for hit in hits:
        words = words_of(hit.text)
        by_video[hit.video].append((hit, words, [term.share_in(words) for term in terms]))
    phrase = f" {' '.join(query)} "
    scored: dict[str, list[_Scored]] = {}
    for video, lines in by_video.items():
        lines.sort(key=lambda each: each[0].start)
        scored[video] = []
        for at, (hit, words, shares) in enumerate(lines):
            end, best = hit.end, shares
            for later, _, others in islice(lines, at + 1, None):
                if later.start > hit.start + NEAR_SECONDS:
                    break
                together = [max(pair) for pair in zip(best, others, strict=True)]
                if later.source == hit.source and sum(together) > sum(best):
                    end, best = max(end, later.end), together
            line = Line(hit.start, end, hit.text, hit.source)
            in_order = phrase in f" {' '.join(words)} "
            total = sum(shares) if best is shares else max(sum(shares), SPREAD * sum(best))
            scored[video].append(_Scored(video, line, total / len(terms), in_order, hit.rank))
    return scored


def _graded(each: _Scored, moments: tuple[Moment, ...], bests: Sequence[float], videos: int) -> Ranked:
    """A hit with its confidence: ``bests`` are the best scores of all videos, negative and ascending."""
    as_good = bisect_right(bests, -each.score + 1e-6)
    confidence = min(1.0, each.score / FULL_SHARE) * (1 - max(0, as_good - 1) / max(videos, 1))
    all_words = each.score >= INFLECTED and each.line.source != "name"
    word = "sure" if all_words else grade(confidence)
    return Ranked(each.video, moments, NO_VECTOR, (), confidence, word, "text", each.line)


def fuse(
    video: Sequence[float], text: Sequence[float], same: Mapping[int, int]
) -> list[tuple[float, int | None, int | None]]:
    """Merge two lists of hits, each best first, by their confidences; what is in both has the greater of the two.

    Hits of the video keep their order, though it is not that of their confidences: each counts as much as the best from
    it on. Of equals, what is said and written comes first: words that are there are there.

    Args:
        video: confidences of what the video shows.
        text: confidences of what is said and written.
        same: places in ``text`` of hits that are in ``video`` too, to their places there.

    Returns:
        confidence, place in ``video`` and place in ``text`` of each hit, best first; None where it is not in one.
    """
    shown = list(accumulate(reversed(video), max))[::-1]
    merged: list[tuple[float, int | None, int | None]] = [(each, place, None) for place, each in enumerate(shown)]
    for other, place in same.items():
        merged[place] = (max(shown[place], text[other]), place, other)
    merged += [(confidence, None, place) for place, confidence in enumerate(text) if place not in same]

    def order(hit: tuple[float, int | None, int | None]) -> tuple[float, bool, int]:
        confidence, here, there = hit
        if there is not None and (here is None or text[there] >= confidence):
            return -confidence, False, there
        return -confidence, True, here or 0

    return sorted(merged, key=order)


def merge(
    ranked: Sequence[Ranked], confidences: Sequence[float], texts: Sequence[Ranked], *, by_moment: bool = False
) -> list[Ranked]:
    """What the video shows and what is said and written in one list, graded. Without the latter the order stays.

    Args:
        ranked: what the video shows.
        confidences: of each.
        texts: what is said and written.
        by_moment: whether the hits are moments, and a video can come several times.
    """
    same: dict[int, int] = {}
    places: dict[str, list[int]] = defaultdict(list)  # in ``ranked``, of each video
    for number, entry in enumerate(ranked):
        places[entry.video].append(number)
    for place, hit in enumerate(texts):
        fitting = (n for n in places.get(hit.video, ()) if not by_moment or _overlap(ranked[n], hit))
        if (match := next(fitting, None)) is not None:
            same[place] = match
            places[hit.video].remove(match)
    found = []
    for confidence, here, there in fuse(confidences, [hit.confidence for hit in texts], same):
        text = None if there is None else texts[there]
        if text is not None and (here is None or text.confidence >= confidence):
            found.append(text if here is None else _together(text, ranked[here]))
        elif here is not None:
            own, line = confidences[here], None if text is None else text.line
            found.append(replace(ranked[here], confidence=own, grade=grade(own), line=line))
    return found


def _overlap(one: Ranked, other: Ranked) -> bool:
    return one.moments[0].start < other.moments[0].end and other.moments[0].start < one.moments[0].end


def _together(text: Ranked, shown: Ranked) -> Ranked:
    """A hit of text whose video is one for what it shows too; a line about all of it has no moment, but that has."""
    moments = text.moments
    if text.line is not None and text.line.source in WHOLE:
        moments = (replace(shown.moments[0], score=text.score), *moments[1:])
    return replace(text, moments=moments, duplicates=tuple(dict.fromkeys([*text.duplicates, *shown.duplicates])))
