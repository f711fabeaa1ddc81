"""Finding by what is said and written: any query is a valid expression; words, lines, names and pictures are found."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.search.text import fuse, index_name, index_text, match_expression, words_of

ODD_QUERIES = (
    "can't stop",
    "c++",
    "-x",
    "NEAR(",
    "NEAR(a b, 3)",
    '"unbalanced',
    'a "b c" "',
    "a AND",
    "OR NOT",
    "text:",
    "{a b}: c",
    "^start",
    "zep*",
    "*",
    '""',
    "a^2 + b^2",
    "(((",
    "'; DROP TABLE line; --",
    "東京タワー",
    "ภาษาไทย",
    "\x00\ud800 x",
)


@pytest.fixture(scope="module")
def fts() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute(
        "CREATE VIRTUAL TABLE line USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3')"
    )
    return database


def matches(fts: sqlite3.Connection, text: str, query: str) -> bool:
    fts.execute("DELETE FROM line")
    fts.execute("INSERT INTO line VALUES (?)", (index_text(text),))
    expression = match_expression(query)
    if expression is None:
        return False
    return bool(fts.execute("SELECT count(*) FROM line WHERE line MATCH ?", (expression,)).fetchone()[0])


@pytest.mark.parametrize("query", ODD_QUERIES)
def test_odd_queries_are_no_syntax_errors_and_find_themselves(fts: sqlite3.Connection, query: str) -> None:
    assert matches(fts, f"well {query} indeed", query) == (match_expression(query) is not None)


@given(st.text(), st.text())
def test_every_query_is_a_valid_expression(query: str, text: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE line USING fts5 (words)")
    for every in (False, True):
        expression = match_expression(query, every=every)
        if expression is not None:
            database.execute("SELECT * FROM line WHERE line MATCH ?", (expression,)).fetchall()
    assert index_text(index_text(text)) == index_text(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Brücke ist hoch", "brucke"),
        ("les élèves", "ELEVES"),
        ("I can't stop", "can't"),
        ("I can\u2019t stop", "can't"),
        ("the bridges of Rome", "bridge"),
        ("one bridge", "bridges"),
        ("a zeppelin lands", "zep*"),
        ("東京タワーの夜景", "東京"),
        ("東京タワーの夜景", "夜景"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("안녕하세요 여러분", "여러분"),
        ("これはペンです", "ペン"),
        ("we say no more", '"no more"'),
        ("to be or not to be", "to be or not"),
    ],
)
def test_what_matches(fts: sqlite3.Connection, text: str, query: str) -> None:
    assert matches(fts, text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the cat", "category"),
        ("category", "cat"),
        ("the king of the hill", "the queen of the sea"),
        ("more or no", '"no more"'),
        ("京東タワー", "東京"),
        ("ベンチ", "ペン"),
        ("nothing to see", "!?"),
    ],
)
def test_what_does_not_match(fts: sqlite3.Connection, text: str, query: str) -> None:
    assert not matches(fts, text, query)


def test_names_are_split_where_people_see_words() -> None:
    assert set(index_name("Summer 2019/BirthdayParty_IMG-0042.MP4").split()) >= {
        "summer", "2019", "birthday", "party", "img", "0042", "birthdayparty",
    }  # fmt: skip
    assert words_of("Ünïcode_and-dashes") == ["unicode", "and", "dashes"]


def test_fusing_keeps_the_order_of_the_video() -> None:
    assert fuse([0.3, 0.9, 0.2], [], {}) == [(0.9, 0, None), (0.9, 1, None), (0.2, 2, None)]
    assert fuse([0.8, 0.5], [0.9, 0.4], {1: 1}) == [(0.9, None, 0), (0.8, 0, None), (0.5, 1, 1)]
    assert fuse([0.8, 0.5], [0.6], {0: 1}) == [(0.8, 0, None), (0.6, 1, 0)]
    assert fuse([1.0], [1.0], {}) == [(1.0, None, 0), (1.0, 0, None)]
