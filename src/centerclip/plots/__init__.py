"""Every picture: figures of results, kept patches and token maps, hits."""


def clock(seconds: float) -> str:
    """A time as hits are captioned with it: ``2:03``, or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
