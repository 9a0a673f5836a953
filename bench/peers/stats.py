"""What is computed from times: the order of a round, the median of paired ratios and its interval."""
import math
import statistics


def order(arms, number):
    """The order of `arms` in round `number`. Every second round is the reverse of the round before it, and each pair
    of rounds starts with another arm, so that no arm always follows the same one."""
    turn = number // 2 % len(arms)
    turned = list(arms[turn:]) + list(arms[:turn])
    return turned[::-1] if number % 2 else turned


def median_interval(values):
    """The median and its 95 % interval by order statistics: the narrowest symmetric pair of values that contains the
    distribution's median with at least this probability. Fewer than 6 values have no such pair; the interval is then
    their range."""
    ordered, n = sorted(values), len(values)
    # The k-th smallest lies above the median if fewer than k of n values lie below it.
    k, tail = 0, 0.0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        k += 1
    k = max(k, 1)
    return statistics.median(ordered), ordered[k - 1], ordered[n - k]


def rate_ratio(ours_ms, peer_ms, ours_work=1.0, peer_work=1.0):
    """Our rate over the peer's, over the rounds that ran both: median, low, high."""
    factor = ours_work / peer_work
    return median_interval([factor * peer / ours for ours, peer in zip(ours_ms, peer_ms)])
