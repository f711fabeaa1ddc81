"""Every benchmark in its own format gives the captions that stand in its files."""

import gzip
import json
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest

from centerclip.data import AnnotationError, read_captions
from centerclip.data.formats import held_out
from tests.data import made_up


@pytest.mark.parametrize("gzipped", [True, False])
def test_msrvtt_holds_its_own_validation_videos_out_of_either_list(tmp_path: Path, gzipped: bool) -> None:
    made_up.msrvtt(tmp_path, gzipped=gzipped)
    assert list(read_captions("msrvtt", tmp_path, "train")) == ["video0", "video1", "video3"]
    assert list(read_captions("msrvtt-7k", tmp_path, "train")) == ["video0", "video1"]
    for name in ("msrvtt", "msrvtt-7k"):
        assert read_captions(name, tmp_path, "val") == {"video2": ["thing 2 way 0", "thing 2 way 1"]}
    assert len(read_captions("msrvtt-9k", tmp_path, "train+val")) == 4


def test_msrvtt_test_pairs_are_those_of_the_list_not_of_the_data_file(tmp_path: Path) -> None:
    made_up.msrvtt(tmp_path)
    assert read_captions("msrvtt", tmp_path, "1k-A") == {"video5": ["a cat, asleep"], "video4": ["a dog runs"]}


@pytest.mark.parametrize("layout", ["json", "pickle"])
def test_msvd_reads_the_same_sentences_from_both_layouts(tmp_path: Path, layout: str) -> None:
    made_up.msvd(tmp_path, layout=layout)
    assert read_captions("msvd", tmp_path, "train") == {"-a_1_2": ["one cow", "a cow"]}
    assert read_captions("msvd", tmp_path, "val+test") == {"b_3_4": ["two cows"], "c_5_6": ["a tree"]}


def test_msvd_reads_its_pickle_first_when_published(tmp_path: Path) -> None:
    made_up.msvd(tmp_path, layout="pickle")
    made_up.text(tmp_path / "captions_msvd.json", json.dumps({"-a_1_2": ["another cow"]}))
    assert read_captions("msvd", tmp_path, "train", protocol="published") == {"-a_1_2": ["one cow", "a cow"]}
    assert read_captions("msvd", tmp_path, "train", protocol="clean") == {"-a_1_2": ["another cow"]}
    (tmp_path / "raw-captions.pkl.gz").unlink()
    assert read_captions("msvd", tmp_path, "train", protocol="published") == {"-a_1_2": ["another cow"]}


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("touched"),)  # type: ignore[return-value]


@pytest.mark.parametrize("content", [Harmful(), {"a": [[Harmful()]]}, OrderedDict(a=[["x"]]), {"a": [[b"x" * 3, 1]]}])
def test_a_pickle_with_anything_but_plain_words_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object
) -> None:
    monkeypatch.chdir(tmp_path)
    made_up.msvd(tmp_path, layout="pickle")
    made_up.packed(tmp_path / "raw-captions.pkl.gz", pickle.dumps(content))
    with pytest.raises(AnnotationError, match=r"raw-captions\.pkl"):
        read_captions("msvd", tmp_path, "train")
    assert not Path("touched").exists()


def test_lsmdc_keeps_dots_in_names_and_quotation_marks_in_sentences(tmp_path: Path) -> None:
    made_up.lsmdc(tmp_path)
    first, second = made_up.LSMDC_CLIPS
    assert read_captions("lsmdc", tmp_path, "test") == {
        first: ['SOMEONE says "no, 0".'],
        second: ['SOMEONE says "no, 1".'],
    }


def test_activitynet_joins_a_videos_sentences_into_one_paragraph(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path)
    assert read_captions("activitynet", tmp_path, "val_1") == {"v_b": ["v_b starts. It ends."]}


def test_activitynet_holds_out_a_part_that_does_not_depend_on_the_other_videos(tmp_path: Path) -> None:
    names = [f"v_{n}" for n in range(400)]
    made_up.activitynet(tmp_path / "all", train=names)
    made_up.activitynet(tmp_path / "half", train=names[::2])
    train, val = (set(read_captions("activitynet", tmp_path / "all", split)) for split in ("train", "val"))
    assert train | val == set(names)
    assert not train & val
    assert 8 <= len(val) <= 35  # about 1 in 20
    assert set(read_captions("activitynet", tmp_path / "half", "val")) == val & set(names[::2])


def test_activitynet_takes_only_the_videos_of_the_authors_list_where_it_is_there(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path, train=["v_a", "v_b"], test=["v_c", "v_d", "v_NHznDFD3V3k"])
    assert list(read_captions("activitynet", tmp_path, "train+val")) == ["v_a", "v_b"]
    files = {video: f"{video}.avi" for video in ("a", "d", "NHznDFD3V3k", "other")}
    made_up.text(tmp_path / "video_path.json", json.dumps(files))
    assert list(read_captions("activitynet", tmp_path, "train+val")) == ["v_a"]
    assert list(read_captions("activitynet", tmp_path, "test")) == ["v_d"]
    made_up.text(tmp_path / "video_path.json", "3")
    with pytest.raises(AnnotationError, match=r"video_path\.json must map video ids to paths"):
        read_captions("activitynet", tmp_path, "test")


def test_didemo_reads_paragraphs_whose_paths_are_of_another_machine(tmp_path: Path) -> None:
    rows = [
        ("success", "video_path", "starts", "ends", "text", "formatted_data"),
        ("True", "/home/x/all_videos/1@N01_2_3a.m4v", "tensor([[0]])", "tensor([[31]])", "a cat. \n it sits", "x.pth"),
        ("True", "/home/x/all_videos/4@N02_5_6b.", "tensor([0])", "tensor([31])", "a dog", "y.pth"),
    ]
    made_up.text(tmp_path / "didemo_test_label.csv", made_up.table(rows, end="\r\n"))
    assert read_captions("didemo", tmp_path, "test") == {"1@N01_2_3a": ["a cat. it sits"], "4@N02_5_6b": ["a dog"]}


def test_didemo_joins_the_moments_of_its_original_layout(tmp_path: Path) -> None:
    moments = [
        {"video": "1@N01_2_3a.mov", "description": "a cat sits.", "times": [[0, 0]]},
        {"video": "4@N02_5_6b.avi", "description": "rain", "times": [[1, 1]]},
        {"video": "1@N01_2_3a.mov", "description": "it jumps.", "times": [[2, 3]]},
    ]
    made_up.text(tmp_path / "train_data.json", json.dumps(moments))
    assert read_captions("didemo", tmp_path, "train") == {
        "1@N01_2_3a": ["a cat sits. it jumps."],
        "4@N02_5_6b": ["rain"],
    }


@pytest.mark.parametrize("kind", ["csv", "jsonl", "csv.gz"])
def test_folder_reads_a_table_of_ones_own(tmp_path: Path, kind: str) -> None:
    rows = [("a.mp4", "a hill", "train"), ("sub/b", "ein Hügel", "test"), ("a.mp4", "the hill, again", "train")]
    if kind == "jsonl":
        keys = ("video", "caption", "split")
        content = "\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows) + "\n\n"
    else:
        content = "\ufeff" + made_up.table([("video", "caption", "split"), *rows])
    data = content.encode()
    (tmp_path / f"captions.{kind}").write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    assert read_captions("folder", tmp_path, "train") == {"a.mp4": ["a hill", "the hill, again"]}
    assert read_captions("folder", tmp_path, "test") == {"sub/b": ["ein Hügel"]}
    assert read_captions("folder", "elsewhere", "test", annotations=tmp_path / f"captions.{kind}")


def test_folder_without_splits_holds_out_by_id(tmp_path: Path) -> None:
    names = [f"{n}.mp4" for n in range(200)]
    made_up.text(tmp_path / "captions.csv", made_up.table([("video", "caption"), *((name, "x") for name in names)]))
    assert list(read_captions("folder", tmp_path, "val")) == [name for name in names if held_out(name)]
    assert list(read_captions("folder", tmp_path, "train")) == [name for name in names if not held_out(name)]
    with pytest.raises(AnnotationError, match="no videos in the split test"):
        read_captions("folder", tmp_path, "test")


@pytest.mark.parametrize(
    ("name", "file", "content", "said"),
    [
        ("folder", "captions.csv", "clip,caption\na,b\n", "no column video"),
        ("folder", "captions.csv", "video,caption,split\na,b,test\na,c,train\n", "two splits"),
        ("folder", "captions.jsonl", '{"video": "a", "caption": "b"}\n{"video": 3}\n', "line 2"),
        ("folder", "captions.jsonl", "[" * 100_000, "line 1"),
        ("activitynet", "val_1.json", "{", "not JSON"),
        ("activitynet", "val_1.json", '{"v": {"sentences": "word"}}', "list of sentences"),
        ("activitynet", "val_1.json", '["v"]', "must map"),
        ("lsmdc", "LSMDC16_challenge_1000_publictect.csv", "a,b,c", "instead of 6"),
        ("didemo", "test_data.json", '[{"video": 3}]', "format of DiDeMo"),
        ("didemo", "test_data.json.gz", "not gzip but text", "not JSON"),
        ("msrvtt", "other.csv", "", "MSRVTT_JSFUSION_test.csv"),
        ("mrsvtt", "other.csv", "", "did you mean msrvtt"),
    ],
)
def test_malformed_files_name_themselves_and_what_is_wrong(
    tmp_path: Path, name: str, file: str, content: str, said: str
) -> None:
    made_up.text(tmp_path / file, content)
    with pytest.raises(AnnotationError, match=said):
        read_captions(name, tmp_path, "test")


def test_truncated_gzip_is_an_annotation_error(tmp_path: Path) -> None:
    made_up.activitynet(tmp_path)
    file = tmp_path / "val_1.json.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(AnnotationError, match=r"val_1\.json\.gz cannot be read"):
        read_captions("activitynet", tmp_path, "test")


@pytest.mark.parametrize("split", ["", "tset", "train+train", "test+1k-A"])
def test_unknown_and_doubled_splits_are_refused(tmp_path: Path, split: str) -> None:
    with pytest.raises(AnnotationError, match="unknown split"):
        read_captions("msvd", tmp_path, split)
