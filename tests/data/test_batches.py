"""Batches: no item twice over all ranks, the same after a restart, whatever the number of ranks."""

from hypothesis import given
from hypothesis import strategies as st

from centerclip.data.loader import EpochBatches, draw


def batches(count: int, size: int, *, rank: int = 0, world: int = 1) -> EpochBatches:
    return EpochBatches(count, size, seed=7, rank=rank, world=world)


counts, sizes, worlds, epochs = st.integers(0, 60), st.integers(1, 9), st.integers(1, 5), st.integers(0, 3)


@given(counts, sizes, worlds, epochs)
def test_ranks_share_the_items_of_the_full_batches(count: int, size: int, world: int, epoch: int) -> None:
    seen = []
    for rank in range(world):
        mine = batches(count, size, rank=rank, world=world)
        mine.seek(epoch)
        for batch in mine:
            assert len(batch) == size
            assert {number for number, _ in batch} == {epoch}
            seen += [item for _, item in batch]
    shuffled = batches(count, size)
    shuffled.seek(epoch)
    assert sorted(seen) == sorted(shuffled.order()[: count - count % (size * world)])


@given(counts, sizes, worlds)
def test_batches_are_as_many_on_every_rank(count: int, size: int, world: int) -> None:
    for rank in range(world):
        mine = list(batches(count, size, rank=rank, world=world))
        assert [len(batch) for batch in mine] == [size] * (count // (size * world))


@given(counts, sizes, epochs, st.integers(0, 20))
def test_starting_in_the_middle_gives_what_was_left(count: int, size: int, epoch: int, start: int) -> None:
    whole, rest = batches(count, size), batches(count, size)
    whole.seek(epoch)
    rest.seek(epoch, start)
    assert list(rest) == list(whole)[start:]


@given(counts, epochs)
def test_global_batches_do_not_depend_on_the_number_of_ranks(count: int, epoch: int) -> None:
    def steps(world: int) -> list[set[int]]:
        ranks = [batches(count, 12 // world, rank=rank, world=world) for rank in range(world)]
        for rank in ranks:
            rank.seek(epoch)
        return [{item for batch in step for _, item in batch} for step in zip(*ranks, strict=True)]

    assert steps(1) == steps(2) == steps(4)


def test_the_order_changes_with_seed_and_epoch_and_is_known() -> None:
    first = batches(8, 8)
    second = batches(8, 8)
    second.seek(1)
    assert first.order() == [4, 3, 2, 1, 5, 0, 7, 6]
    assert first.order() != second.order()
    assert EpochBatches(8, 8, seed=8).order() != first.order()


@given(st.text(), st.integers(), st.integers(1, 40))
def test_draws_are_in_range_and_repeat(video: str, seed: int, count: int) -> None:
    assert 0 <= draw(seed, video) < 2**64
    assert draw(seed, video) == draw(seed, video)
