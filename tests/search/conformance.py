"""What every store must do. Subclass ``StoreConformance`` and say how to make one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from centerclip.search.filters import Filters
from centerclip.search.store import AddedVideo, File, Floats, Line, Segments, Store, Video

WIDTH = 16


def unit(rows: int, seed: int) -> Floats:
    """``[rows, WIDTH]`` random vectors of norm 1 that float16 keeps as they are."""
    vectors = np.random.default_rng(seed).normal(size=(rows, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float16).astype(np.float32)


def video(number: int, segments: int = 5, lines: tuple[Line, ...] = ()) -> AddedVideo:
    starts = np.arange(segments, dtype=np.float32) ** 1.5  # at uneven distances
    known = Video(f"{number:032x}", float(segments), 64, 48, 1000.0 + number)
    if number == 1:
        facts = {"note": "a note", "detail": "fine", "recorded": 1.5e9, "camera": "Maker Model"}
        known = replace(known, **facts, latitude=-33.9, longitude=18.4)  # type: ignore[arg-type]
    return known, Segments(starts, starts + 1, unit(segments, number)), lines


def file(path: str, number: int | None, failure: str = "") -> File:
    return File(path, 10, 20, "" if number is None else f"{number:032x}", failure)


FILTERS: list[tuple[Filters, Sequence[int]]] = [  # and the videos that pass them: the last one is elsewhere, and later
    (Filters(), range(9)),
    (Filters(without=f"{3:032x}"), (0, 1, 2, 4, 5, 6, 7, 8)),
    (Filters(name="3.MP4"), (3,)),
    (Filters(name="[34].*"), (3, 4)),
    (Filters(folder="/v"), range(8)),
    (Filters(folder="/elsewhere"), (8,)),
    (Filters(folder="/else"), ()),
    (Filters(folder="/elsewhere", name="no"), ()),
    (Filters(after=1.0), (8,)),
    (Filters(before=1.0), range(8)),
    (Filters(min_duration=5.0), range(8)),
    (Filters(max_duration=4.9), (8,)),
    (Filters(min_duration=6.0), ()),
    (Filters(only="photos"), ()),
    (Filters(only="videos"), range(9)),
    (Filters(recorded_after=1.4e9), (1,)),
    (Filters(recorded_before=1.4e9), ()),
    (Filters(camera="MODEL"), (1,)),
    (Filters(camera="other"), ()),
    (Filters(near=(-34.0, 18.0, 100.0)), (1,)),
    (Filters(near=(34.0, 18.0, 100.0)), ()),
]


class StoreConformance:
    """Tests of a store; ``tidied`` also after :meth:`Store.tidy`.

    Words are not looked for where a store says that it does not find text, and begun words not where ``begun`` is not
    set.
    """

    begun = True

    def make(self, folder: Path) -> Store:
        raise NotImplementedError

    @pytest.fixture(params=["as written", "tidied"])
    def store(self, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
        store = self.make(tmp_path)
        store.add([video(n) for n in range(8)], [file(f"/v/{n}.mp4", n) for n in range(8)])
        if request.param == "tidied":
            store.tidy(unit(8, 99))
        return store

    def test_an_empty_store_finds_nothing(self, tmp_path: Path) -> None:
        view = self.make(tmp_path).view()
        assert (dict(view.videos), dict(view.files), view.count()) == ({}, {}, 0)
        assert view.search(unit(1, 0)[0], 5).videos == []
        assert view.sample(10).shape == (0, WIDTH)

    def test_a_video_is_replaced_with_its_files_and_lines_kept(self, store: Store) -> None:
        line = Line(1.0, 2.0, "a ledger", "subtitle")
        store.add_lines(video(3)[0].id, [line], "subtitle")
        before = store.view()
        before.segments(video(3)[0].id)
        fresh = replace(video(3)[0], detail="fine")
        store.replace(fresh, video(3, segments=9)[1])
        view = store.view()
        assert view.videos[fresh.id] == fresh
        assert dict(view.files) == dict(before.files)
        assert (view.count(), view.size(fresh.id), len(view.segments(fresh.id))) == (44, 9, 9)
        assert np.allclose(view.segments(fresh.id).vectors, video(3, segments=9)[1].vectors)
        assert view.lines(fresh.id) == [line]
        assert view.read_videos("subtitle") == {fresh.id}
        assert [hit.video for hit in view.search_lines("ledger", 5)] == ([fresh.id] if view.finds_text else [])
        assert view.search(video(3, segments=9)[1].vectors[8], 1).videos == [fresh.id]
        assert len(view.search(unit(1, 7)[0], 100).videos) == 44
        with pytest.raises(KeyError):
            store.replace(replace(fresh, id="not there"), video(3)[1])

    def test_what_was_added_comes_back(self, store: Store) -> None:
        view = store.view()
        assert dict(view.videos) == {video(n)[0].id: video(n)[0] for n in range(8)}
        assert dict(view.files) == {f"/v/{n}.mp4": file(f"/v/{n}.mp4", n) for n in range(8)}
        assert view.count() == 40
        assert view.size(video(2)[0].id) == 5
        known, segments, _ = video(3)
        back = view.segments(known.id)
        np.testing.assert_array_equal(back.vectors, segments.vectors)
        np.testing.assert_array_equal(back.starts, segments.starts)
        np.testing.assert_array_equal(back.ends, segments.ends)

    def test_an_unknown_video_is_a_key_error(self, store: Store) -> None:
        with pytest.raises(KeyError):
            store.view().segments("f" * 32)
        with pytest.raises(KeyError):
            store.view().size("f" * 32)
        with pytest.raises(KeyError):
            store.add([], [file("/v/of no video.mp4", 99)])
        assert "/v/of no video.mp4" not in store.view().files

    @pytest.mark.parametrize("top", [1, 7, 40, 100])
    def test_search_finds_the_largest_products_in_order(self, store: Store, top: int) -> None:
        query = unit(1, 77)[0]
        everything = np.concatenate([video(n)[1].vectors for n in range(8)]) @ query
        hits = store.view().search(query, top)
        np.testing.assert_allclose(hits.scores, np.sort(everything)[::-1][:top], atol=1e-6)
        owners = [video(n)[0].id for n in range(8) for _ in range(5)]
        assert hits.videos == [owners[row] for row in np.argsort(-everything, kind="stable")[:top]]

    def test_among_is_exact(self, store: Store) -> None:
        chosen = [video(2)[0].id, video(5)[0].id, "not there"]
        hits = store.view().search(unit(1, 78)[0], 100, among=chosen)
        assert len(hits.videos) == 10
        assert set(hits.videos) == set(chosen[:2])
        assert store.view().search(unit(1, 78)[0], 100, among=[]).videos == []

    def test_a_video_is_added_once(self, store: Store) -> None:
        store.add([video(3), video(9), video(9)], [])
        assert store.view().count() == 45
        store.add([video(3, segments=2)], [file("/v/copy.mp4", 3)])  # nothing new about it
        assert store.view().count() == 45
        assert store.view().size(video(3)[0].id) == 5

    def test_files_are_replaced_by_path(self, store: Store) -> None:
        store.add([], [file("/v/3.mp4", None, "unreadable: why"), file("/v/it's new.mp4", 3)])
        files = store.view().files
        assert len(files) == 9
        assert files["/v/3.mp4"].failure == "unreadable: why"
        assert files["/v/it's new.mp4"].video == video(3)[0].id

    def test_removed_videos_are_found_no_more(self, store: Store) -> None:
        gone = video(4)[0].id
        store.remove([gone, "not there"], ["/v/4.mp4", "/not/there"])
        view = store.view()
        assert gone not in view.videos
        assert "/v/4.mp4" not in view.files
        assert view.search_names('"4"', 9) == []
        assert view.count() == 35
        assert gone not in view.search(video(4)[1].vectors[0], 100).videos
        assert len(view.search(unit(1, 5)[0], 100).videos) == 35
        with pytest.raises(KeyError):
            view.segments(gone)

    def test_a_video_that_comes_back_is_there_once_with_its_new_segments(self, store: Store) -> None:
        known, _, _ = video(4)
        store.view()
        store.remove([known.id], [])
        store.view()
        store.add([(known, video(50, segments=3)[1], ())], [])
        view = store.view()
        assert view.count() == 38
        np.testing.assert_array_equal(view.segments(known.id).vectors, unit(3, 50))
        assert view.search(unit(3, 50)[1], 1).videos == [known.id]

    def test_a_view_does_not_change(self, store: Store) -> None:
        view = store.view()
        before = view.search(unit(1, 3)[0], 100)
        store.add([video(20)], [file("/v/20.mp4", 20)])
        store.remove([video(1)[0].id], ["/v/1.mp4"])
        after = view.search(unit(1, 3)[0], 100)
        assert after.videos == before.videos
        assert "/v/1.mp4" in view.files
        assert store.view() is not view

    def test_the_view_is_the_same_object_while_nothing_changes(self, store: Store) -> None:
        assert store.view() is store.view()

    def test_a_sample_is_of_the_store_and_repeats(self, store: Store) -> None:
        rows = {row.tobytes() for n in range(8) for row in video(n)[1].vectors}
        sample = store.view().sample(10)
        assert 10 <= len(sample) <= 40
        assert all(row.tobytes() in rows for row in sample)
        np.testing.assert_array_equal(sample, store.view().sample(10))

    def test_names_that_are_not_text_come_back(self, store: Store) -> None:
        odd = "/v/\udcff'\"\n;--.mp4"
        store.add([], [file(odd, 1)])
        assert store.view().files[odd].video == video(1)[0].id
        store.tidy(unit(4, 1))
        assert odd in store.view().files
        store.remove([], [odd])
        assert odd not in store.view().files

    def test_a_video_goes_with_its_files(self, store: Store) -> None:
        store.add([], [file("/v/copy.mp4", 4)])
        store.remove([video(4)[0].id], [])
        assert not {"/v/4.mp4", "/v/copy.mp4"} & store.view().files.keys()

    def test_lines_come_back_and_go_with_their_video(self, store: Store) -> None:
        assert not store.view().has_lines
        said = (Line(3.5, 4.0, "Over the BRIDGE,\nnow", "subtitle"), Line(1.0, 2.5, "Crossing a bridge", "chapter"))
        store.add([video(20, lines=said)], [])
        view, id = store.view(), video(20)[0].id
        assert view.has_lines
        assert view.lines(id) == [said[1], said[0]]
        assert view.lines(video(0)[0].id) == view.lines("not there") == []
        assert store.view() is view
        store.remove([id], [])
        assert not store.view().has_lines
        assert store.view().search_lines('"bridge"', 9) == []

    def test_lines_are_found_by_their_words_in_the_videos_that_are_asked_for(self, store: Store) -> None:
        for number, text in enumerate(
            ["bridge bridge", "a long way over the old stone bridge", "a river", "été 東京塔"]
        ):
            store.add([video(20 + number, lines=(Line(number, number + 1, text, "subtitle"),))], [])
        view, ids = store.view(), [video(20 + number)[0].id for number in range(4)]
        if not view.finds_text:
            assert view.search_lines('"bridge"', 9) == []
            return
        hits = view.search_lines('"bridge"', 9)
        assert [(hit.video, hit.start, hit.end, hit.text, hit.source) for hit in hits] == [
            (ids[0], 0, 1, "bridge bridge", "subtitle"),
            (ids[1], 1, 2, "a long way over the old stone bridge", "subtitle"),
        ]
        assert hits[0].rank < hits[1].rank < 0
        assert [hit.video for hit in view.search_lines('"bridge"', 1)] == ids[:1]
        assert [hit.video for hit in view.search_lines('"bridge"', 1, among=ids[1:])] == [ids[1]]
        assert view.search_lines('"bridge"', 9, among=[]) == []
        for match in ('"ete"', '"stone" "bridge"', '"東 京"', *(['"ri"*'] if self.begun else [])):
            assert len(view.search_lines(match, 9)) == 1, match

    def test_the_lines_of_a_source_are_replaced_and_remembered(self, store: Store) -> None:
        id, title = video(20)[0].id, Line(0, 5, "A title", "title")
        store.add([video(20, lines=(title,))], [])
        assert store.view().read_videos("spoken") == set()
        store.add_lines(id, [Line(1, 2, "wrong words", "spoken")], "spoken")
        store.add_lines(id, [Line(1, 2, "right words", "spoken")], "spoken")
        assert store.view().lines(id) == [title, Line(1, 2, "right words", "spoken")]
        assert store.view().search_lines('"wrong"', 9) == []
        store.add_lines(id, [], "spoken")  # there was nothing to hear
        assert store.view().lines(id) == [title]
        assert store.view().read_videos("spoken") == {id}
        with pytest.raises(KeyError):
            store.add_lines("not there", [], "spoken")
        store.remove([id], [])
        assert store.view().read_videos("spoken") == set()

    def test_files_are_found_by_their_names_and_folders(self, store: Store) -> None:
        paths = ["/v/Zürich 2019/lake.mp4", "/v/other/lake_at-night.mp4", "/v/bad lake.mp4"]
        store.add([], [file(path, number) for path, number in zip(paths, (1, 2, None), strict=True)])
        view = store.view()
        if not view.finds_text:
            assert view.search_names('"lake"', 9) == []
            return
        assert {(path, id) for path, id, _ in view.search_names('"lake"', 9)} == {
            (paths[0], video(1)[0].id), (paths[1], video(2)[0].id),
        }  # fmt: skip
        assert [path for path, _, _ in view.search_names('"zurich" "lake"', 9)] == paths[:1]
        assert [path for path, _, _ in view.search_names('"lake"', 1, among=[video(2)[0].id])] == paths[1:2]
        store.add([], [file(paths[0], 3)])
        assert [id for _, id, _ in store.view().search_names('"zurich"', 9)] == [video(3)[0].id]

    def test_what_is_asked_for_is_looked_up_in_one_go(self, store: Store) -> None:
        store.add([video(20)], [file("/v/copy.mp4", 3), file("/v/bad.mp4", None, "unreadable: why")])  # 20 has no file
        view, ids = store.view(), [video(n)[0].id for n in (3, 5, 20)]
        found = view.with_files([*ids, "not there"])
        assert [(video, len(files)) for video, (_, files) in found.items()] == [(ids[0], 2), (ids[1], 1)]
        assert found[ids[1]] == (video(5)[0], [file("/v/5.mp4", 5)])
        assert view.files_at(["/v/5.mp4", "/not/there"]) == {"/v/5.mp4": file("/v/5.mp4", 5)}
        assert view.has_size(10)
        assert not view.has_size(11)
        totals = view.totals()
        assert (totals.videos >= 8, totals.files, totals.failed) == (True, 9, {"/v/bad.mp4": "unreadable: why"})
        assert set(view.files) == {path for path, _ in view.files.items()}
        assert {each.id for each in view.videos.values()} == set(view.videos)

    def test_filters_are_exact(self, store: Store) -> None:
        late = replace(file("/elsewhere/Eight.mp4", 8), modified=2 * 10**9)
        store.add([video(8, segments=3)], [late])
        view = store.view()
        for filters, passing in FILTERS:
            hits = view.search(unit(1, 78)[0], 100, among=filters)
            assert set(hits.videos) == {video(n)[0].id for n in passing}, filters
            assert len(hits.videos) == sum(3 if n == 8 else 5 for n in passing), filters
            if view.finds_text:
                named = {id for _, id, _ in view.search_names('"v" OR "elsewhere"', 99, among=filters)}
                assert named == {video(n)[0].id for n in passing}, filters

    def test_files_move_with_their_folder(self, store: Store) -> None:
        store.add([], [file("/v/deep/a.mp4", 1), file("/v/deeper.mp4", 2)])
        assert store.move("/v/deep", "/w") == 1
        assert store.move("/not/there", "/w") == 0
        files = store.view().files
        assert files["/w/a.mp4"] == file("/w/a.mp4", 1)
        assert "/v/deep/a.mp4" not in files
        assert "/v/deeper.mp4" in files
        assert len(files) == 10
        assert store.move("/v/3.mp4", "/v/4.mp4") == 1  # onto one that is there
        assert store.view().files["/v/4.mp4"].video == video(3)[0].id
        assert len(store.view().files) == 9

    def test_values_are_kept(self, store: Store) -> None:
        view = store.view()
        assert store.value("a") is None
        store.set_value("a", b"1")
        store.set_value("a", b"\x00\xff")
        assert store.value("a") == b"\x00\xff"
        assert store.view() is view
