from centerclip.model.tokenizer import clip_tokenizer


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
