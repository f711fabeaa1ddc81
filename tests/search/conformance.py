"""What every store must do. Subclass ``StoreConformance`` and say how to make one."""

from pathlib import Path

import numpy as np
import pytest

from centerclip.search.store import File, Floats, Segments, Store, Video

WIDTH = 16


def unit(rows: int, seed: int) -> Floats:
    """``[rows, WIDTH]`` random vectors of norm 1 that float16 keeps as they are."""
    vectors = np.random.default_rng(seed).normal(size=(rows, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float16).astype(np.float32)


def video(number: int, segments: int = 5) -> tuple[Video, Segments]:
    starts = np.arange(segments, dtype=np.float32)
    known = Video(f"{number:032x}", float(segments), 64, 48, 1000.0 + number, "a note" if number == 1 else "")
    return known, Segments(starts, starts + 1, unit(segments, number))


def file(path: str, number: int | None, failure: str = "") -> File:
    return File(path, 10, 20, "" if number is None else f"{number:032x}", failure)


class StoreConformance:
    """Tests of a store; ``tidied`` also after :meth:`Store.tidy`."""

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

    def test_what_was_added_comes_back(self, store: Store) -> None:
        view = store.view()
        assert dict(view.videos) == {video(n)[0].id: video(n)[0] for n in range(8)}
        assert dict(view.files) == {f"/v/{n}.mp4": file(f"/v/{n}.mp4", n) for n in range(8)}
        assert view.count() == 40
        known, segments = video(3)
        back = view.segments(known.id)
        np.testing.assert_array_equal(back.vectors, segments.vectors)
        np.testing.assert_array_equal(back.starts, segments.starts)
        np.testing.assert_array_equal(back.ends, segments.ends)

    def test_an_unknown_video_is_a_key_error(self, store: Store) -> None:
        with pytest.raises(KeyError):
            store.view().segments("f" * 32)

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
        assert view.count() == 35
        assert gone not in view.search(video(4)[1].vectors[0], 100).videos
        assert len(view.search(unit(1, 5)[0], 100).videos) == 35
        with pytest.raises(KeyError):
            view.segments(gone)

    def test_a_video_that_comes_back_is_there_once_with_its_new_segments(self, store: Store) -> None:
        known, _ = video(4)
        store.view()
        store.remove([known.id], [])
        store.view()
        store.add([(known, video(50, segments=3)[1])], [])
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
