"""The root of every error that CenterCLIP raises on purpose."""


class CenterClipError(Exception):
    """Something a person can act on: the message says what is wrong and what to do. The command line prints it."""
