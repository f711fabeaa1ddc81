"""CLIP's tokenizer: OpenAI's ids, and text cleaned as CLIP's was."""

import html
import subprocess
import sys

import ftfy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.model.token_ids import clean_text
from centerclip.model.tokenizer import clip_tokenizer

from . import tiny


def test_known_ids():
    tokenizer = clip_tokenizer()
    assert len(tokenizer) == 49408
    assert tokenizer("a photo of a cat")["input_ids"] == [49406, 320, 1125, 539, 320, 2368, 49407]


def test_equals_the_package_it_is_rebuilt_from():
    from instant_clip_tokenizer import Tokenizer

    package, tokenizer = Tokenizer(), clip_tokenizer()
    for text in [
        "a child blows out candles",
        "Hello, WORLD! it's 2024 #tag @name",
        "naïve café — “quotes” … ½",
        "日本語のテキスト, 한국어, русский текст, ไทย, العربية",
        "😀 emoji 🚀👩‍🚀 flies",
        "supercalifragilisticexpialidocious antidisestablishmentarianism",
    ]:
        assert tokenizer(text)["input_ids"][1:-1] == package.encode(text), text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a dog\u2019s \u201cbig\u201d day", 'a dog\'s "big" day'),
        ("salt &amp; pepper", "salt & pepper"),
        ("salt &amp;amp; pepper &lt;3", "salt & pepper <3"),
        ("<b> &amp; </b>", "<b> & </b>"),  # ftfy leaves entities alone where there are tags
        ("  a\tman\r\n talks  ", "a man talks"),
        ("a caf\u00c3\u00a9", "a caf\u00e9"),
        ("", ""),
    ],
)
def test_clean_text(text, clean):
    assert clean_text(text) == clean


@given(st.text(st.characters(max_codepoint=0x2100, exclude_categories=["Cs"])))
def test_clean_text_does_what_openai_does(text):
    unescaped = html.unescape(html.unescape(ftfy.fix_text(text)))
    assert clean_text(text) == " ".join(unescaped.split())


def test_captions_are_cleaned_before_they_are_tokenised():
    model = tiny.center_clip()
    tokens = model.tokenize(["a dog\u2019s ball &amp; a cat", "a dog's  ball & a cat"])["input_ids"]
    assert tokens[0].tolist() == tokens[1].tolist()


def test_clean_text_needs_no_torch():
    code = "import sys; from centerclip.model.token_ids import clean_text; clean_text('a &amp; b')"
    code += "; print('ftfy' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "False"]
