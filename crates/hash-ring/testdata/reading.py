#!/usr/bin/env python3
"""Another reading of the hashes and of the slot table's format: python3 reading.py [vectors.json], beside it.
It needs the package xxhash, and prints how many vectors it agrees with."""
import bisect, json, pathlib, struct, sys
from xxhash import xxh3_64_intdigest as xxh3

def pair(node, number): return xxh3(struct.pack(">QQ", node, number))
def key_hash(kind, key): return xxh3(kind.encode() + b"\0" + key.encode())
def log2(i):  # log2(1 + i/256), 32 binary places
    y, digits = (256 + i) << 55, 0
    for _ in range(32):
        y = y * y >> 63
        digits, y = digits << 1 | y >> 64, y >> (y >> 64)
    return digits if i < 256 else 1 << 32
LOG2 = [log2(i) for i in range(257)]
def score(node, number):
    x = pair(node[0], number) | 1
    zeros = 64 - x.bit_length()
    m = x << zeros
    step, within = m >> 55 & 0xff, m >> 31 & 0xffffff
    distance = (zeros + 1 << 32) - LOG2[step] - ((LOG2[step + 1] - LOG2[step]) * within >> 24)
    return distance * (2**32 // node[2]) >> 8, node[0]
def jump(key, buckets):
    b, j = 0, 0
    while j < buckets:
        b, key = j, (key * 2862933555777941757 + 1) % 2**64
        j = int((b + 1) * (2**31 / ((key >> 33) + 1)))
    return b
def ring_owner(members, k, key):
    points = sorted((pair(n[0], v), n[0]) for n in members for v in range(k * n[2]))
    return points[bisect.bisect_left(points, (key, 0)) % len(points)][1]
def quotas(slots, members):  # largest remainder, then the lower id
    total = sum(n[2] for n in members)
    q = {n[0]: slots * n[2] // total for n in members}
    order = sorted(members, key=lambda n: (-(slots * n[2] % total), n[0]))
    for n in order[:slots - sum(q.values())]: q[n[0]] += 1
    return q
def first_primaries(slots, members):
    room, primaries = quotas(slots, members), []
    for slot in range(slots):
        primaries.append(min(score(n, slot) for n in members if room[n[0]])[1])
        room[primaries[-1]] -= 1
    return primaries
def decode(b):
    magic, algorithm, copies, seats, slots, epoch = struct.unpack_from(">4sBBHIQ", b)
    assert (magic, algorithm, xxh3(b[:-8])) == (b"UST1", 1, int.from_bytes(b[-8:], "big"))
    rows = struct.unpack(">%dH" % (slots * copies), b[20 + 18 * seats:-8])
    return epoch, [struct.unpack_from(">QQH", b, 20 + 18 * i) for i in range(seats)], \
        [rows[i:i + copies] for i in range(0, len(rows), copies)]
def changed(table, b):  # the epoch, seats and rows that a change leads to
    magic, algorithm, copies, seats, slots, start, epoch, new, rows = struct.unpack_from(">4sBBHIQQHI", b)
    assert (magic, algorithm, xxh3(b[:-8]), start) == (b"USC1", 1, int.from_bytes(b[-8:], "big"), table[0])
    nodes, out, at = (table[1] + [(0, 0, 0)] * seats)[:seats], list(table[2]), 34
    for i in range(new): nodes[struct.unpack_from(">H", b, at + 20 * i)[0]] = struct.unpack_from(">QQH", b, at + 20 * i + 2)
    for i in range(rows):
        slot, *row = struct.unpack_from(">I%dH" % copies, b, at + 20 * new + (4 + 2 * copies) * i)
        out[slot] = tuple(row)
    return epoch, nodes, out
def hexed(node): return int(node[0], 16), int(node[1], 16), node[2]
v = json.loads(pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).with_name("vectors.json")).read_text())
agreed = [key_hash(kind, key) == int(h, 16) for kind, key, h in v["hashes"]]
agreed += [xxh3(name.encode()) == int(h, 16) for name, h in v["names"]] + \
    [pair(seed, number) == int(h, 16) for seed, number, h in v["simulated nodes"]]
agreed += [jump(int(key, 16), buckets) == bucket for key, buckets, bucket in v["jump"]]
ring, members = v["ring"], [hexed(n) for n in v["ring"]["members"]]
agreed += [ring_owner(members, ring["virtual nodes"], int(k, 16)) == int(o, 16) for k, o in ring["owners"]]
members = [hexed(n) for n in v["rendezvous"]["members"]]
agreed += [[s[1] for s in sorted(score(n, int(key, 16)) for n in members)] == [int(i, 16) for i in ids]
           for key, ids in v["rendezvous"]["ranked"]]
for first in v["first tables"]:
    epoch, seats, rows = decode(bytes.fromhex(first["table"]))
    agreed += [epoch == 1 and seats == sorted(hexed(n) for n in first["members"]),
               [seats[row[0]][0] for row in rows] == first_primaries(len(rows), seats)]
for step in v["changes"]:
    start, change, end = (bytes.fromhex(step[name]) for name in ("from", "change", "to"))
    agreed.append(changed(decode(start), change) == decode(end) and change[-16:-8] == end[-8:])
print(f"{len(agreed)} tests ({sum(agreed)} passed, {len(agreed) - sum(agreed)} failed)")
sys.exit(not all(agreed))
