"""``centerclip index``, ``search``, ``status`` and ``remove``: what people and programs see, and exit codes."""

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from centerclip import VideoIndex
from centerclip.cli import app, main
from centerclip.cli.index import _when_free
from centerclip.errors import CenterClipError, MissingExtra
from centerclip.integrations import desktop
from centerclip.search import (
    DamagedIndex,
    Hit,
    IndexBusy,
    IndexNotFound,
    Moment,
    OtherSettings,
    Progress,
    Results,
    SearchError,
)
from centerclip.search.ranking import Grade
from tests.search.collection import clip, save_model, scenes
from tests.video.subtitled import srt
from tests.video.test_sound import talking_clip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(3):
        clip(folder / f"{number}.mp4", number)
    scenes(folder / "[red]film.mkv", [4, 5], seconds=12)
    (folder / "bad.mp4").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, videos: Path, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("index") / "index"
    result = run("index", videos, "--index", folder, "--model", model, "--detail", "fine")
    assert result.exit_code == 0, result.output
    assert "4 added, 1 unreadable" in result.stdout
    assert "bad.mp4: not-a-video: this is not a video" in result.stderr
    return folder


def run(*arguments: object, **options: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}, **options)  # type: ignore[arg-type]


def test_indexing_again_says_what_was_there(index: Path, videos: Path) -> None:
    answer = json.loads(run("index", "--index", index, "--json").stdout)
    assert (answer["added"], answer["unchanged"], answer["removed"]) == (0, 4, 0)
    assert list(answer["failed"]) == [str(videos / "bad.mp4")]
    assert answer["failed_before"] == [str(videos / "bad.mp4")]
    again = run("index", videos, "--index", index)
    assert "nothing new, 4 unchanged, 1 unreadable" in again.stdout
    assert again.stderr == "  1 as before; see centerclip status\n"


def test_hits_in_words_json_and_csv_agree(index: Path, videos: Path) -> None:
    answer = json.loads(run("search", "a dog", "--index", index, "--json", "--all").stdout)
    assert len(answer["hits"]) == 4
    best = answer["hits"][0]
    assert set(best) >= {"video_id", "path", "start", "end", "score", "moments", "duration"}
    rows = list(csv.DictReader(run("search", "a dog", "--index", index, "--csv", "--all").stdout.splitlines()))
    assert [row["path"] for row in rows] == [hit["path"] for hit in answer["hits"]]
    assert float(rows[0]["score"]) == best["score"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d:\d\d", rows[0]["timecode_end"])
    text = run("search", "a dog", "--index", index, "--all").stdout
    assert f"  1  {best['score']:.3f}" in text
    assert str(videos / "[red]film.mkv") in text  # brackets are no markup


def a_hit(name: str, score: float, grade: Grade, duplicates: tuple[Path, ...] = ()) -> Hit:
    return Hit(name, Path(f"/{name}.mp4"), 0, 3, score, (Moment(0, 3, score),), 3, duplicates=duplicates, grade=grade)


def test_a_line_cuts_off_what_is_less_likely(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [a_hit("a", 0.3, "sure"), a_hit("b", 0.2, "unlikely")]
    monkeypatch.setattr(VideoIndex, "search", lambda *_, **__: Results(hits))
    lines = run("search", "a dog", "--index", index).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["/a.mp4", "likely:", "/b.mp4"]
    monkeypatch.setattr(VideoIndex, "search", lambda *_, **__: Results([a_hit("c", 0.25, "maybe")]))
    assert run("search", "a dog", "--index", index).stdout.split()[:2] == ["1", "0.250?"]
    monkeypatch.setattr(VideoIndex, "search", lambda *_, **__: Results(hits[:1]))
    assert len(run("search", "a dog", "--index", index).stdout.splitlines()) == 1


def test_all_lists_near_duplicates_and_says_nothing_else(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hit = a_hit("a", 0.2, "unlikely", duplicates=(Path("/b.mp4"),))
    twin = a_hit("b", 0.1, "unlikely")

    def search(self: VideoIndex, *query: object, collapse: bool, **options: object) -> Results:
        return Results([hit] if collapse else [replace(hit, duplicates=()), twin])

    monkeypatch.setattr(VideoIndex, "search", search)
    collapsed, everything = (run("search", "a dog", "--index", index, *more).stdout for more in ([], ["--all"]))
    assert [line.split()[-1] for line in collapsed.splitlines()[1:]] == ["/a.mp4", "/b.mp4"]
    assert [line.split()[:2] for line in everything.splitlines()[1:]] == [["1", "0.200"], ["2", "0.100"]]
    assert collapsed.splitlines()[0] == everything.splitlines()[0]
    assert collapsed.startswith("Probably none of these matches. The closest ones:\n")


def test_top_moments_and_filters(index: Path) -> None:
    def titles(*options: object) -> list[str]:
        answer = json.loads(run("search", "a dog", "--index", index, "--json", "--all", *options).stdout)
        return [Path(hit["path"]).stem for hit in answer["hits"]]

    assert len(titles("--top", 2)) == 2
    assert titles("--name", "film") == ["[red]film"]
    assert sorted(titles("--max-duration", 5)) == ["0", "1", "2"]
    assert titles("--min-duration", "0:20") == ["[red]film"]
    assert titles("--min-duration", "1:00:00") == []
    assert titles("--before", "1999") == []
    assert titles("--min-score", 2) == []
    assert set(titles("--moments", "--name", "film")) == {"[red]film"}


def test_nothing_found_says_why(index: Path, videos: Path, model: Path, tmp_path: Path) -> None:
    for filters in (["--name", "zzz"], ["--folder", "/nowhere"], ["--after", "2100"], ["--min-score", "0.99"]):
        result = run("search", "a dog", "--index", index, *filters)
        assert (result.exit_code, result.stdout) == (0, "Nothing found: no video passes the filters.\n")
    film = clip(tmp_path / "a.mp4", 1)
    run("index", film, "--index", tmp_path / "index", "--model", model)
    alone = run("search", "--video", film, "--index", tmp_path / "index")
    assert alone.stdout == "Nothing found: no other video is in the index.\n"
    run("remove", film, "--index", tmp_path / "index")
    empty = run("search", "a dog", "--index", tmp_path / "index").stdout
    assert empty == f"The index {tmp_path / 'index'} is empty. Add videos with: centerclip index FOLDER\n"


def test_words_without_quotes_are_one_sentence(index: Path) -> None:
    joined, quoted = (run("search", *words, "--index", index, "--json") for words in (["a", "dog"], ["a dog"]))
    assert json.loads(joined.stdout) == json.loads(quoted.stdout)


def test_clips_and_playlists_are_written(index: Path, tmp_path: Path) -> None:
    result = run(
        "search", "a dog", "--index", index, "--all", "--top", 3, "--save", tmp_path / "out",
        "--m3u", tmp_path / "hits.m3u", "--timeline", tmp_path / "hits.EDL", "--chapters", tmp_path / "chapters",
        "--handles", "1s",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert (tmp_path / "hits.m3u").read_text().count("#EXTINF") == 3
    assert (tmp_path / "hits.EDL").read_text().count("FROM CLIP NAME") == 3
    assert len(list((tmp_path / "chapters").iterdir())) == 3
    assert f"3 moments at 25 fps in {tmp_path / 'hits.EDL'}" in result.stderr
    wrong = run("search", "a dog", "--index", index, "--timeline", "hits.mov")
    assert (wrong.exit_code, "hits.mov is not a timeline file" in wrong.stderr) == (2, True)


def test_open_plays_the_best_moment_in_a_player_that_takes_a_time(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(desktop.subprocess, "Popen", lambda command, **options: started.append(command))
    monkeypatch.setattr(desktop, "has_desktop", lambda: True)
    found = {"vlc": "/usr/bin/vlc", "xdg-open": "/usr/bin/xdg-open"}
    monkeypatch.setattr(desktop.shutil, "which", found.get)
    result = run("search", "a dog", "--index", index, "--json", "--open")
    best = json.loads(result.stdout)["hits"][0]
    assert "playing" in result.stderr
    del found["vlc"]
    assert "the moment is at" in run("search", "a dog", "--index", index, "--open").stderr
    assert started == [
        ["/usr/bin/vlc", f"--start-time={best['start']:.2f}", best["path"]],
        ["xdg-open", best["path"]],
    ]
    found["mpv"] = "/usr/bin/mpv"  # which shows a photograph for a second
    desktop.play(Path("a.jpg"), None)
    assert started[2:] == [["xdg-open", "a.jpg"]]
    monkeypatch.setattr(desktop, "has_desktop", lambda: False)
    with pytest.raises(CenterClipError, match="no desktop"):
        desktop.play(Path("a.mp4"), 1.0)


def test_thumbnails_are_coloured_half_blocks(index: Path) -> None:
    text = run("search", "a dog", "--index", index, "--thumbnails", "--top", 2).stdout
    assert text.count("▀") == 2 * 28 * 8
    assert "\x1b[38;2;" in text
    assert "▀" not in run("search", "a dog", "--index", index).stdout


def test_status_and_doctor_describe_the_index(index: Path, videos: Path, model: Path) -> None:
    answer = json.loads(run("status", "--index", index, "--json").stdout)
    assert (answer["videos"], answer["files"], answer["segments"], answer["clustering"]) == (4, 4, 20, "B2-4,8")
    assert answer["roots"] == [str(videos)]
    text = run("status", "--index", index).stdout
    assert "videos    4" in text
    assert "search    exact" in text
    assert "bad.mp4" in text
    checked = run("doctor", "--index", index)
    assert checked.exit_code == 0, checked.output
    assert "ok   vectors   20 checked, all of norm 1" in checked.stdout
    assert "runs on onnxruntime (cpu) in float32" in checked.stdout


def test_doctor_finds_what_is_missing(videos: Path, model: Path, tmp_path: Path) -> None:
    assert run("doctor", "--index", tmp_path / "none").exit_code == 1
    film = clip(tmp_path / "a.mp4", 1)
    run("index", film, "--index", tmp_path / "index", "--model", model)
    film.unlink()
    answer = run("doctor", "--index", tmp_path / "index", "--json")
    assert answer.exit_code == 1
    assert [finding["what"] for finding in json.loads(answer.stdout) if not finding["ok"]] == ["files"]


def test_remove_and_reindex(videos: Path, model: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    run("index", videos, "--index", index, "--model", model)
    assert "1 file removed" in run("remove", videos / "0.mp4", "--index", index).stdout
    nothing = run("remove", videos / "0.mp4", "--index", index)
    assert nothing.exit_code == 1
    assert "not in the index" in nothing.stderr
    asked = run("index", "--reindex", "--every", 0.5, "--index", index, input="n\n")
    assert asked.exit_code == 1
    assert "drops the vectors of 3 videos" in asked.stderr
    assert json.loads(run("status", "--index", index, "--json").stdout)["every"] == 1
    with closing(sqlite3.connect(index / "index.db")) as database:
        database.execute("PRAGMA user_version = 1000")
    newer = run("search", "a dog", "--index", index)
    assert isinstance(newer.exception, DamagedIndex)
    assert "made by a newer version of centerclip" in str(newer.exception)
    with closing(sqlite3.connect(index / "index.db")) as database:
        database.execute("PRAGMA user_version = 1")
    assert run("index", "--reindex", "--yes", "--every", 0.5, "--index", index).exit_code == 0
    answer = json.loads(run("status", "--index", index, "--json").stdout)
    assert (answer["videos"], answer["every"]) == (3, 0.5)
    assert f"left out  {videos / '0.mp4'}" in run("status", "--index", index).stdout
    assert "1 added" in run("index", videos / "0.mp4", "--index", index).stdout  # named again


def test_a_folder_that_is_elsewhere_is_offline_until_the_index_is_told(model: Path, tmp_path: Path) -> None:
    index, old, new = tmp_path / "index", tmp_path / "old", tmp_path / "new"
    clip(old / "a.mp4", 1, tags={"location": "+52.37+004.89/"})
    run("index", old, "--index", index, "--model", model)
    old.rename(new)
    assert f"{old / 'a.mp4'} (offline)" in run("search", "a dog", "--index", index).stdout
    assert json.loads(run("search", "a dog", "--index", index, "--json").stdout)["hits"][0]["offline"] is True
    assert f"offline   1 video in {old}: not connected?" in run("status", "--index", index).stdout
    answer = json.loads(run("status", "--index", index, "--json").stdout)
    assert (answer["videos"], answer["offline"], answer["offline_roots"]) == (1, 1, [str(old)])
    assert run("index", "--moved", old, new, "--index", index).stdout == "1 file of the index moved.\n"
    nothing = run("index", "--moved", old, new, "--index", index)
    assert str(nothing.exception) == f"the index has nothing in {str(old)!r}; its folders are: {new}"
    found = run("search", "a dog", "--near", "52,5,50", "--index", index)
    assert str(new / "a.mp4") in found.stdout
    assert "(offline)" not in found.stdout
    assert "no video passes" in run("search", "a dog", "--near", "52,5,10", "--index", index).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["search"],
        ["search", " "],
        ["search", "a", "--json", "--csv"],
        ["search", "a", "--after", "soon"],
        ["search", "a", "--recorded-before", "soon"],
        ["search", "a", "--near", "52.4,4.9"],
        ["search", "a", "--near", "99,4.9,10"],
        ["search", "a", "--top", "0"],
        ["search", "a", "--min-duration", "long"],
        ["search", "a", "--min-duration", "-1"],
        ["index", "x", "--clustering", "nonsense"],
        ["index", "x", "--every", "0"],
        ["index", "x", "--moved", "a", "b"],
        ["doctor", "a.mp4", "--index", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path, index: Path, videos: Path) -> None:
    for arguments, kind in (
        (["search", "a dog", "--index", tmp_path / "none"], IndexNotFound),
        (["status", "--index", tmp_path / "none"], IndexNotFound),
        (["index", videos, "--index", index, "--every", "3"], OtherSettings),
        (["index", tmp_path / "nowhere", "--index", index], CenterClipError),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert isinstance(result.exception, kind)


def end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str]:
    """The exit code of the program and what it says on stderr."""
    monkeypatch.setattr(sys, "argv", ["centerclip", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err.splitlines()[-1]


def test_system_errors_are_sentences_that_name_the_path(
    index: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, *options: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    file, missing = tmp_path / "file", tmp_path / "none" / "x.m3u"
    file.write_text("")
    searched = ("search", "a dog", "--index", index)
    assert end(monkeypatch, capsys, *searched, "--m3u", missing) == (
        1,
        f"centerclip: {missing} cannot be written: there is no folder {missing.parent}; make it first",
    )
    assert end(monkeypatch, capsys, *searched, "--save", file) == (
        1,
        f"centerclip: {file} is a file, not a folder; name another",
    )
    code, below = end(monkeypatch, capsys, "index", videos, "--index", file / "index")
    assert (code, below) == (1, f"centerclip: {file / 'index'} is below a file, not a folder; name another")
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert end(monkeypatch, capsys, "index", videos, "--index", tmp_path / "index") == (
        1,
        f"centerclip: {tmp_path / 'index'} cannot be used: permission denied; check who may read and write it",
    )


def test_an_interrupt_says_what_is_kept(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: VideoIndex, *paths: Path, on_progress: Callable[[Progress], None], **options: object) -> None:
        on_progress(Progress(3, 8, 60, 60, 200))
        raise KeyboardInterrupt

    monkeypatch.setattr(VideoIndex, "add", interrupt)
    assert end(monkeypatch, capsys, "index", videos, "--index", tmp_path) == (
        130,
        "centerclip: stopped: 3 of 8 videos are indexed and kept. Run the same command again to continue",
    )
    monkeypatch.setattr(VideoIndex, "__init__", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert end(monkeypatch, capsys, "status") == (130, "centerclip: interrupted")


def test_a_query_that_is_not_text_is_refused(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = end(monkeypatch, capsys, "search", os.fsdecode(b"\xff dog"), "--index", index)
    assert (code, message) == (
        1,
        "centerclip: the sentence '\\udcff dog' is not valid UTF-8; check the terminal's encoding",
    )


def test_help_is_grouped_and_every_command_has_an_example() -> None:
    everything = run("--help").stdout
    assert everything.index("Your videos") < everything.index("index") < everything.index("Research")
    commands = [command.callback.__name__ for command in app.registered_commands if command.callback]
    for command in [*commands, *(group.name for group in app.registered_groups)]:
        assert f"Example: centerclip {command}" in run(command, "--help").stdout


def test_watch_waits_while_another_process_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [IndexBusy("another process is writing"), IndexBusy("another process is writing"), None]
    monkeypatch.setattr("centerclip.cli.index.RETRY_SECONDS", 0)

    def run_once() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    _when_free(run_once)
    assert answers == []


def test_watch_indexes_what_comes(model: Path, tmp_path: Path) -> None:
    clip(tmp_path / "videos" / "a.mp4", 1)
    command = ["index", tmp_path / "videos", "--index", tmp_path / "index", "--model", model, "--watch", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "centerclip", *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["added"] == 1
        clip(tmp_path / "b.mp4", 2).rename(tmp_path / "videos" / "b.mp4")
        answer = json.loads(process.stdout.readline())
        assert (answer["added"], answer["unchanged"]) == (1, 1)
    finally:
        process.kill()
        process.wait()


def test_what_is_said_is_found_and_quoted(model: Path, tmp_path: Path) -> None:
    for number in range(2):
        clip(tmp_path / "videos" / f"{number}.mp4", number)
    (tmp_path / "videos" / "1.srt").write_text(srt((0.5, 1.5, "You \x1b[31mcan't stop the ledger")))
    folder = tmp_path / "index"
    assert run("index", tmp_path / "videos", "--index", folder, "--model", model).exit_code == 0
    words = run("search", "can't", "stop", "--in", "text", "--index", folder)
    assert 'said at 0:00: "You [31mcan\'t stop the ledger"' in words.stdout
    hit = json.loads(run("search", '"the ledger"', "--index", folder, "--json").stdout)["hits"][0]
    assert (hit["found_by"], hit["start"], hit["grade"]) == ("text", 0.5, "sure")
    assert hit["line"] == {"start": 0.5, "end": 1.5, "text": "You [31mcan't stop the ledger", "source": "subtitle"}
    (row,) = csv.DictReader(run("search", "ledger", "--in", "text", "--index", folder, "--csv").stdout.splitlines())
    assert (row["found_by"], row["text"]) == ("text", hit["line"]["text"])
    assert "none of these words" in run("search", "zeppelin", "--in", "text", "--index", folder).stdout
    assert run("search", "x", "--in", "text", "--image", "x.jpg", "--index", folder).exit_code == 2
    (tmp_path / "videos" / "0.de.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nGuten Tag\n")
    assert "nothing new, 2 unchanged, 1 with new text" in run("index", "--index", folder).stdout


def test_speech_is_transcribed_once_and_found_when_it_is_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the package: it says a sentence where the sound is loud."""

    class WhisperModel:
        def __init__(self, name: str, **options: object) -> None:
            assert name == "tiny"

        def transcribe(self, samples: np.ndarray, **options: object) -> tuple[list[SimpleNamespace], None]:
            loud = np.flatnonzero(np.abs(samples) > 0.2) / 16_000
            said = SimpleNamespace(start=float(loud.min()), end=float(loud.max()), text=" The ferry leaves at noon.")
            return [said], None

    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=WhisperModel))
    (tmp_path / "videos").mkdir()
    talking_clip(tmp_path / "videos" / "harbour.mp4")
    clip(tmp_path / "videos" / "silent.mp4", 1)
    folder = tmp_path / "index"
    first = run("index", tmp_path / "videos", "--index", folder, "--model", model, "--transcribe", "tiny")
    assert "2 added, 2 with new text" in first.stdout
    hit = json.loads(run("search", "a ferry leaving at noon", "--index", folder, "--json").stdout)["hits"][0]
    assert (Path(hit["path"]).name, hit["found_by"], hit["line"]["source"]) == ("harbour.mp4", "text", "spoken")
    assert (hit["start"], hit["end"]) == pytest.approx((2.0, 4.0), abs=0.1)
    assert "said at 0:0" in run("search", "ferry", "--in", "text", "--index", folder).stdout
    again = run("index", "--index", folder, "--transcribe", "tiny")
    assert "nothing new, 2 unchanged." in again.stdout


def test_a_speech_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises((MissingExtra, SearchError), match="speech"):
        run("index", tmp_path, "--index", tmp_path / "index", "--transcribe", tmp_path / "none", catch_exceptions=False)
    assert not (tmp_path / "index").exists()
