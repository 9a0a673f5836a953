"""What a run times."""


class Arm:
    """call() queues the work on the current stream and returns the output. A rate counts `work`. `keep` lives as long.

    case: what the arm computes, where that is not the row's case: its output is compared with that case's reference.
    scale: what elements of the output are multiplied by, [1] or [KV heads], where they are not the values.
    """

    def __init__(self, name, call, work, keep=(), case=None, scale=None):
        self.name, self.call, self.work, self.keep, self.case, self.scale = name, call, work, keep, case, scale


class Cannot(Exception):
    """A peer does not take a row, or the machine does not have the peer."""
