#!/usr/bin/env python3
"""The loads of `unbroken ring simulate blog` or `spans` made again, and judged by scipy: scipy_check.py report.json

It makes each first ring from the seed with code of its own. Numbers agree if they are equal to three digits."""
import json
import struct
import sys

import numpy
from scipy import stats
from xxhash import xxh3_64_intdigest as xxh3


def pair(node, number):
    return xxh3(struct.pack(">QQ", node, number))


def loads(seed, nodes, k):
    """In units of the mean, ascending: a node holds what is between its places and those before them."""
    ids = [pair(seed, number) for number in range(nodes)]
    points = numpy.fromiter((pair(i, v) for i in ids for v in range(k)), numpy.uint64, nodes * k)
    order = numpy.argsort(points)
    gaps = numpy.diff(points[order], prepend=points[order[-1]])  # modulo 2^64
    held = numpy.bincount(order // k, weights=gaps.astype(float), minlength=nodes)
    return numpy.sort(held) * (nodes / 2**64)


def equal(ours, theirs):
    return abs(ours - theirs) <= 5e-4 * abs(theirs) or max(abs(ours), abs(theirs)) < 1e-290


report = json.load(open(sys.argv[1]))
passed = failed = 0


def check(name, ours, theirs):
    global passed, failed
    passed, failed = passed + equal(ours, theirs), failed + (not equal(ours, theirs))
    if not equal(ours, theirs):
        print(f"{name}: {ours}, and scipy has {theirs}")


for spans in report["spans"]:
    nodes, k, test = spans["nodes"], spans["virtual nodes"], spans["test"]
    own = loads(report["seed"], nodes, k)
    for name, value in [("min", own[0]), ("max", own[-1]), ("median", own[(nodes - 1) // 2]), ("deviation", own.std())]:
        check(f"k = {k}: {name}", spans["loads"][name], value)
    beta = stats.beta(float(k), k * (nodes - 1.0), scale=nodes)
    check(f"k = {k}: expected deviation", spans["expected deviation"], beta.std())
    check(f"k = {k}: expected median", spans["expected median"], stats.gamma(k, scale=1 / k).median())
    laws = {"": stats.gamma(k, scale=1 / k), "normal ": stats.norm(1, beta.std()), "next ": stats.gamma(k + 1, scale=1 / (k + 1))}
    for name, law in laws.items():
        fit = stats.kstest(own, law.cdf)
        check(f"k = {k}: {name}distance", test[name + "distance"], fit.statistic)
        check(f"k = {k}: {name}p", test[name + "p"], fit.pvalue)
        if spans["pooled"]:
            pooled = spans["pooled"]["test"]
            p = stats.kstwo.sf(pooled[name + "distance"], nodes * spans["pooled"]["rings"])
            check(f"k = {k}: {name}p of all rings", pooled[name + "p"], p)
print(f"{passed + failed} tests ({passed} passed, {failed} failed)")
sys.exit(failed > 0)
