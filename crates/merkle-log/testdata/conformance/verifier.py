#!/usr/bin/env python3
"""A receiver of the proof of delivery, to run the conformance set with: python3 verifier.py [verdicts.json …]

Written from docs/audit.md alone, sections 2 to 8, for algorithm 1, with nothing but the standard library and the
package xxhash, to be read beside that page. It holds every leaf and marks those that the page calls folded. What no
case needs is left out: limits, parents, carriers, merging of members' ledgers, presences. It prints a line for each
case that fails, with the first difference, and at the end how many passed and failed.
"""
import base64
import json
import os
import sys

import xxhash

WINDOW, GROUP = 1024, 32
DIRECTORIES = 64  # of a producer: a copy of one of these is known as one
LATENESS, HEARTBEAT, IDLE, ANNOUNCED = 800, 1_000, 10_000, 20_000  # ms


class Refused(Exception):
    """What cannot be read, does not fit its tag, or is no answer to what was asked."""


# Section 2: hashes and trees.

def x(seed, data):
    return xxhash.xxh3_128_digest(data, seed)


def leaf(data):
    return x(0, b"\0" + data)


def root(hashes):
    """The root over leaves, or over subtrees of one height of which the last may be less."""
    if len(hashes) < 2:
        return hashes[0] if hashes else x(0, b"")
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return x(1, root(hashes[:k]) + root(hashes[k:]))


def subtrees(first, end):
    """The subtrees of a range, left to right."""
    while first < end:
        size = first & -first or 1 << end.bit_length()
        while first + size > end:
            size >>= 1
        yield first, first + size
        first += size


def runs(numbers, apart=None):
    """Numbers as ranges [first, end], ascending; one begins at `apart` in any case."""
    out = []
    for n in sorted(numbers):
        if out and out[-1][1] == n != apart:
            out[-1][1] = n + 1
        else:
            out.append([n, n + 1])
    return out


# Sections 3 to 6: what is read and written.

class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, n):
        if n > len(self.data):
            raise Refused("too short")
        out, self.data = self.data[:n], self.data[n:]
        return out

    def int(self, n):
        return int.from_bytes(self.take(n), "big")

    def variable(self):
        value = shift = 0
        while True:
            byte = self.int(1)
            value |= (byte & 127) << shift
            if value >= 1 << 64 or shift and not byte:
                raise Refused("a variable integer that is too large or has a second spelling")
            if byte < 128:
                return value
            shift += 7

    def end(self):
        if self.data:
            raise Refused("bytes left over")


def variable(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def gap_list(numbers):
    at, out = 0, b""
    for first, end in runs(numbers):
        out, at = out + variable(first - at) + variable(end - first), end
    return out


class Property:
    def __init__(self, text):
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
            raise Refused("a second spelling")
        r = Reader(data)
        first, flags, self.part, self.parts = r.take(4)
        self.algorithm, self.resent, self.covered = first & 15, bool(flags & 1), data[4:24]
        self.epoch, self.lane, self.number = r.int(4), r.int(8), r.int(8)
        width = {1: 16, 2: 16, 3: 32, 8: 20}.get(self.algorithm)
        if first >> 4 != 1 or width is None or flags > 7 or not self.lane or self.number >= 1 << 63:
            raise Refused("version, algorithm, flags, lane or number")
        if self.part > self.parts or self.parts and not self.part:
            raise Refused("part")
        self.digest = r.take(width)
        r.end()

    def fits(self, topic, payload):
        return self.digest == leaf(self.covered + len(topic).to_bytes(4, "big") + topic + payload)


class Checkpoint:
    """A checkpoint or, on lane 0, a directory."""

    def __init__(self, data):
        r = Reader(data)
        if r.take(6) != bytes.fromhex("cdaace9a0101"):
            raise Refused("no checkpoint of version 1 and algorithm 1")
        log, bits = r.int(1), r.int(1)
        self.detail, self.cut, self.closed = bits & 31, bool(bits & 32), bool(bits & 128)
        self.lane, self.epoch, self.number = r.int(8), r.int(4), r.int(4)
        self.first, self.size, self.time = r.int(8), r.int(8), r.int(8)
        self.root, zero, self.lane_root, zeros = r.take(16), r.int(16), r.take(16), r.int(16)
        if r.take(16) != x(2, data[:112] + data[128:]) or zero or zeros:
            raise Refused("tag, or a root that is too wide")
        if not self.lane:
            if log or bits != 3 or self.size > 4096:
                raise Refused("no directory")
            entries = [r.take(20) for _ in range(self.size)]
            fields = [[int.from_bytes(e[a:b], "big") for a, b in ((0, 8), (8, 12), (12, 20))] for e in entries]
            self.start, self.producer, self.lanes = self.epoch, self.first, {f[0]: (f[1], f[2]) for f in fields}
            if list(self.lanes) != sorted(f[0] for f in fields) or 0 in self.lanes:
                raise Refused("lanes that do not ascend")
            if not root([leaf(e) for e in entries]) == self.root == self.lane_root:
                raise Refused("a directory with another root")
        else:
            told, width = self.size - self.first, {0: 0, 1: 4, 2: 16}.get(self.detail)
            if log != 10 or width is None or self.cut and self.closed or self.first % WINDOW:
                raise Refused("flags, detail or window")
            if not 0 <= told <= WINDOW or self.size > 1 << 63 or bool(bits & 64) != (told < WINDOW):
                raise Refused("size")
            self.leaves = [r.take(width) for _ in range(told)] if width else []
            if self.detail == 2 and root(self.leaves) != self.root:
                raise Refused("leaves that do not fold to the root")
        r.end()


def read_drop(data):
    """The lane, epoch and leaves by number of a drop record."""
    r, at, leaves = Reader(data), 0, {}
    if r.int(2) >> 8 != 0x11:
        raise Refused("version or algorithm")
    epoch, lane = r.int(4), r.int(8)
    if r.take(16) != x(2, data[:14] + data[30:]) or not r.data:
        raise Refused("tag, or no runs")
    while r.data:
        head = r.variable()
        if leaves and head < 2:
            raise Refused("runs that touch")
        at += head >> 1
        for _ in range(r.variable() + 2 if head & 1 else 1):
            leaves[at], at = r.take(16), at + 1
    return lane, epoch, leaves


# Section 8: an epoch of a lane.

class Window:
    def __init__(self, index):
        self.index, self.size = index, None  # what of it was compared
        self.claims, self.detail = {}, (0, [])  # size: root; what the last checkpoint tells of the leaves
        self.unresolved, self.groups, self.differs = False, None, set()  # of a descent: the hashes, which to ask for
        self.reported = None, {}


class Epoch:
    def __init__(self, receiver, lane, epoch, scope):
        self.receiver, self.lane, self.epoch, self.scope = receiver, lane, epoch, scope
        self.member = receiver.join == "member"
        self.next, self.fronts = scope, {}  # of each window the lowest number that has not come
        self.leaves, self.dropped, self.second = {}, {}, {}  # by number; second copies are those of a conflict
        self.held, self.holding = set(), self.member  # whose leaves a receiver that folds still holds
        self.unfolded = set()  # windows of which a number was declared dropped
        self.undropped = None  # behind the last number that was declared dropped and came
        self.altered, self.parts = {}, {}
        self.since, self.lost, self.forged = {}, set(), set()  # what is missing
        self.outstanding, self.suspected, self.suspicious = set(), set(), False
        self.stretch = []  # (number, on time) of each first arrival
        self.covered, self.windows = scope, {}
        self.newest, self.cut, self.highest, self.closed, self.ended = None, None, -1, None, False
        self.contradictions, self.silent, self.heard, self.beat = 0, False, receiver.now, HEARTBEAT

    def say(self, event, **members):
        self.receiver.events.append({"event": event, "lane": f"{self.lane:016x}", "epoch": self.epoch, **members})

    def slot(self, n):
        return self.leaves.get(n) or self.dropped.get(n)

    def window(self, i):
        return self.windows.setdefault(i, Window(i))

    # Messages: the table from the line on that follows "before the scope".

    def message(self, p, fits):
        n = p.number
        beyond = self.closed is not None and n >= self.closed
        if not fits:
            if self.slot(n) or beyond:
                return "injected"
            self.altered[n] = self.altered.get(n, 0) + 1
            self.suspected.discard(n)
            self.settle_doubt()
            return "altered"
        if beyond:
            self.end_contradicted(self.closed, n)
        declared = n in self.dropped and n in self.held  # and no root has proven it
        if self.slot(n) and not declared:
            return self.again(n, p)
        verdict = self.part(n, p) if p.parts else None
        if verdict:
            return verdict
        self.parts.pop(n, None)
        if declared:
            return self.came(n, p)
        if n >= self.next:
            verdict = "in order" if n == self.next else "ahead"
        elif n in self.lost:
            verdict = "found"
        else:
            verdict = "in order" if self.member else "late"
        is_share = self.member and n < self.next
        self.arrive(n, p, verdict)
        return "repaired" if p.resent and not is_share else verdict

    def again(self, n, p):
        if n in self.held and self.slot(n) != p.digest:
            if p.digest not in self.second.setdefault(n, []):
                self.second[n].append(p.digest)
            self.contradicted()
            return "conflict"
        if not p.resent and n not in self.held:
            self.holding = True
            return "repeated"
        return "replayed" if p.resent else "duplicate"

    def came(self, n, p):
        """A message that a drop record named."""
        del self.dropped[n]
        self.leaves[n] = p.digest
        if self.undropped != n:
            self.say("drop contradicted", number=n)
        self.undropped = n + 1
        self.evaluate(n // WINDOW)
        return "in order" if self.member else "repaired" if p.resent else "late"

    def part(self, n, p):
        parts, came = self.parts.setdefault(n, (p.parts, set()))
        if p.parts != parts:
            return "injected"
        if p.part in came:
            return "replayed" if p.resent else "duplicate"
        came.add(p.part)
        return "part" if len(came) < parts else None

    def arrive(self, n, p, verdict):
        on_time, copies = n >= self.next, self.altered.pop(n, 0)
        self.pass_over(n)
        if copies and not p.resent:
            self.say("injected", number=n, copies=copies)
        self.leaves[n] = p.digest
        self.held.add(n)
        if verdict == "found":
            highest = max((*self.leaves, *self.dropped))
            if not p.resent and highest > n:
                self.say("moved", first=n, end=n + 1, displacement=highest - n)
        elif not p.resent and (self.outstanding or self.stretch):
            self.stretch.append((n, on_time))
        self.fill(n)
        if verdict == "late" and not p.resent and self.outstanding:
            self.say("overtaken", number=n, by=sum(m > n for m, _ in self.stretch))
        self.fold(n)
        self.settle()
        self.evaluate(n // WINDOW, again=False)

    def fold(self, n):
        """Leaves of a window whose turn has come are not held; all are where a number is declared."""
        i = n // WINDOW
        if not self.holding and i not in self.unfolded and n == self.fronts.get(i, i * WINDOW):
            while n // WINDOW == i and self.slot(n):
                self.held.discard(n)
                n += 1
            self.fronts[i] = n

    def pass_over(self, n):
        """A number came or was declared dropped: what lies between is suspected."""
        if n < self.next:
            return
        between = {m for m in range(self.next, n) if not self.slot(m)}
        for m in between:
            self.since.setdefault(m, self.receiver.now)
        self.next = n + 1
        if not self.member:
            self.outstanding |= between
            self.suspected |= between - set(self.altered)
            for first, end in runs(between - set(self.altered)):
                self.suspicious = True
                self.say("suspected", first=first, end=end)

    def fill(self, n):
        for place in (self.lost, self.forged, self.outstanding, self.suspected):
            place.discard(n)
        self.since.pop(n, None)

    def drop(self, leaves):
        for n, digest in leaves.items():
            if n >= self.scope and not self.slot(n):
                if self.closed is not None and n >= self.closed:
                    self.end_contradicted(self.closed, n)
                self.pass_over(n)
                self.dropped[n] = digest
                self.unfolded.add(n // WINDOW)
                self.held.add(n)
                self.altered.pop(n, None)
                self.parts.pop(n, None)
                self.fill(n)
        self.settle()
        for i in sorted({n // WINDOW for n in leaves}):
            self.evaluate(i, again=False)

    # Order.

    def settle(self):
        """Nothing is outstanding: a stretch ends. Nothing is suspected: that is settled."""
        if not self.outstanding:
            stretch, self.stretch, moved = self.stretch, [], []
            stays, place = longest(stretch), {n: i for i, (n, _) in enumerate(sorted(stretch))}
            for i, (n, _) in enumerate(stretch):
                far = i - place[n]
                if n not in stays and moved and (moved[-1]["end"], moved[-1]["displacement"]) == (n, far):
                    moved[-1]["end"] += 1
                elif n not in stays:
                    moved.append({"first": n, "end": n + 1, "displacement": far})
            for run in moved:
                self.say("moved", **run)
        self.settle_doubt()

    def settle_doubt(self):
        if self.suspicious and not self.suspected:
            self.suspicious = False
            self.say("settled")

    # Checkpoints.

    def contradicted(self):
        self.contradictions += 1
        if self.contradictions == 2:
            self.say("two producers")

    def end_contradicted(self, size, number):
        self.closed = None
        self.say("end contradicted", size=size, number=number)
        self.contradicted()

    def checkpoint(self, c):
        tells_news = not self.ended if c.cut else c.number > self.highest
        if self.silent and tells_news:
            self.silent = False
            self.say("heard")
        if tells_news:
            self.beat, self.heard = IDLE if c.size <= self.covered else HEARTBEAT, self.receiver.now
        new, size, w = self.newest, c.size - c.first, self.window(c.first // WINDOW)
        told, in_scope = self.told(), c.size > self.scope
        longer = self.closed is not None and c.size > self.closed
        other = in_scope and size and size == self.claim(w.index)[0] and w.claims.get(size, c.root) != c.root
        wrong = longer or other
        below = c.closed and c.size < told
        wrong |= below or not c.cut and c.number <= self.highest and c.size > max(told, self.scope)
        if new and not c.cut:
            differs = c.size != new.size or size and (c.root, c.lane_root) != (new.root, new.lane_root)
            wrong |= bool(c.number == new.number and differs) or c.number > new.number and c.size < new.size
        if wrong:
            self.say("checkpoint contradicts", number=c.number)
            self.contradicted()
        beyond = [n for n in (*self.leaves, *self.dropped) if n >= c.size]
        if longer:
            self.closed = None
        if c.closed and beyond and not below:
            self.end_contradicted(c.size, min(beyond))
        elif c.closed and not below:
            self.close(c.size)
        if c.cut:
            self.ended = True
        else:
            self.highest = max(self.highest, c.number)
        self.cover(c.size)
        if in_scope and size and not other:
            self.claimed(c, w, size, new)
        for i in range(self.scope // WINDOW, c.first // WINDOW + 1):
            self.evaluate(i)

    def claimed(self, c, w, size, new):
        if c.cut and (not self.cut or c.size > self.cut.size):
            self.cut = c
        elif not c.cut and (not new or (c.size, c.number) > (new.size, new.number)):
            self.newest = c
        if c.detail:
            self.holding, w.detail = True, (c.detail, c.leaves)
        w.claims.setdefault(size, c.root)

    def close(self, size):
        """The epoch is over; what a directory told beyond counts no more."""
        self.closed, end = size, max(size, self.scope)
        self.next, self.covered = min(self.next, end), min(self.covered, end)
        for n in [n for n in (*self.since, *self.lost, *self.altered) if n >= end]:
            self.fill(n)
            self.altered.pop(n, None)

    def cover(self, size):
        for n in range(max(self.next, self.covered), size):
            self.since.setdefault(n, self.receiver.now)
        self.covered = max(self.covered, size)

    def time(self):
        now = self.receiver.now
        over = self.closed is not None or self.ended or not self.covered and not self.next
        if not over and not self.silent and now - self.heard >= 2 * self.beat:
            self.silent = True
            self.say("silent")
        late = set() if self.member else {
            n for n, since in self.since.items()
            if n < self.covered and n not in self.lost and now - since >= LATENESS}
        for first, end in runs(late - set(self.altered), apart=self.next):
            self.say("lost", first=first, end=end, tail=first >= self.next)
        self.lost |= late
        self.outstanding -= late
        self.suspected -= late
        self.next = max(late | {self.next - 1}) + 1
        if late:
            self.settle()
        for i in sorted({n // WINDOW for n in late}):
            self.evaluate(i)

    # Windows.

    def claim(self, i):
        """The largest size that a checkpoint told of a window, and its root; all of it if it is of a later one."""
        claims = self.window(i).claims
        size = WINDOW if self.told() > (i + 1) * WINDOW else max(claims, default=None)
        return size, claims.get(size)

    def largest(self):
        """The checkpoint that told the largest size."""
        return max(filter(None, (self.newest, self.cut)), key=lambda c: c.size, default=None)

    def told(self):
        return self.largest().size if self.largest() else 0

    def own_root(self, first, size):
        slots = [self.slot(n) for n in range(first, first + size)]
        return None if None in slots else root(slots)

    def lane_root_holds(self, i, instead=None):
        """Whether a later lane root is the root over this receiver's windows, or with another root for one."""
        c, roots = self.largest(), []
        for v in range(c.first // WINDOW):
            own = self.window(v).claims.get(WINDOW) or self.own_root(v * WINDOW, WINDOW)
            roots.append(instead or own if v == i else own)
        return not self.scope and None not in roots and root([*roots, c.root]) == c.lane_root

    def evaluate(self, i, again=True):
        """What a window comes to. `again`: another account of what is faulty already is reported, too."""
        first, w = i * WINDOW, self.window(i)
        size, told = self.claim(i)
        if first < self.scope or not size:
            return
        if size != w.size:  # what is larger is compared anew
            w.size, w.unresolved, w.groups = size, False, None
        missing = {n for n in range(first, first + size) if not self.slot(n)}
        if self.slot(first + size) and not missing and size < WINDOW:
            return  # more has come than it covers, and may be folded
        if missing:
            if missing <= self.lost:
                forged = len(self.forged)
                self.compare_detail(w, first)
                if len(self.forged) > forged:
                    self.evaluate(i)
                elif again and not self.member:
                    self.report(w, "faulty", first, size)
        elif told == self.own_root(first, size) or not told and self.lane_root_holds(i):
            w.unresolved, w.claims[size] = False, self.own_root(first, size)
            self.decide(first, size)
            over = self.closed is not None or self.cut and self.next <= self.told()
            if size == WINDOW or over or w.reported[0] == "faulty":
                self.report(w, "proven", first, size)
        elif told:
            self.differ(w, first, size)
        elif self.scope:
            self.report(w, "unproven", first, size)
        else:
            self.differ(w, first, size)
            self.report(w, "unproven", first, size)

    def report(self, w, state, first, size):
        span = range(first, first + size)
        missing = {n for n in span if not self.slot(n)}
        forged = missing & self.forged
        altered = (missing - forged) & set(self.altered)
        account = {"first": first, "end": first + size, "arrived": sum(n in self.leaves for n in span),
                   "dropped": sum(n in self.dropped for n in span), "lost": len(missing - forged - altered),
                   "altered": len(altered), "forged": len(forged)}
        known, before = w.reported
        if known != state or before != account:
            w.reported = state, account
            self.say(state, **account)

    def decide(self, first, size):
        """A root proves a window: of two copies the one that was not taken out is real, and no leaf is held."""
        for n in range(first, first + size):
            for _ in self.second.pop(n, []):
                self.say("decided", number=n, second_is_real=False)
            self.held.discard(n)

    def differ(self, w, first, size):
        """All slots are filled, and their root is not that of its checkpoint, or of a later lane root."""
        if w.unresolved:
            return
        named = self.compare_detail(w, first)
        w.unresolved = True
        if not named:
            self.say("root differs", first=first, end=first + size)
        elif not self.own_root(first, size) or w.detail[0] == 2:
            w.unresolved = False
            self.evaluate(first // WINDOW)

    def compare_detail(self, w, first):
        """Names what the detail of a checkpoint shows. Whether it shows anything."""
        kind, told = w.detail
        told = {n: d for n, d in enumerate(told, first) if self.slot(n)}
        wrong = {n for n, d in told.items() if not self.slot(n).startswith(d)}
        if kind == 2:
            self.forge(told)
        elif wrong & self.held:
            self.take_out(wrong & self.held)
        elif wrong and not w.unresolved:
            w.unresolved = True
            for g in sorted({n // GROUP * GROUP for n in wrong}):
                for a, b in subtrees(g, min(g + GROUP, self.fronts[w.index])):
                    self.say("root differs", first=a, end=b)
        return bool(wrong)

    def forge(self, told):
        """The producer's leaves are known: what arrived in the place of others is forged."""
        wrong = {n for n, r in told.items() if self.slot(n) != r}
        for n in sorted(n for n in wrong if told[n] in self.second.get(n, [])):
            self.second[n].remove(told[n])
            self.say("decided", number=n, second_is_real=True)
        among = set()  # of the folded ones, subtrees with more than one: which of their messages are, is not known
        for a, b in runs(set(told) - self.held):
            for first, end in (s for g in range(a, b, GROUP) for s in subtrees(g, min(b, g + GROUP))):
                if len(wrong.intersection(range(first, end))) > 1:
                    among.add((first, end))
        self.take_out(wrong, among)

    def take_out(self, wrong, among=()):
        exact = wrong.difference(*(range(*numbers) for numbers in among))
        wrong = exact.union(*(range(*numbers) for numbers in among))
        for n in wrong:
            for place in (self.leaves, self.dropped, self.second):
                place.pop(n, None)
            self.since[n] = self.receiver.now
        self.held -= wrong
        self.lost |= wrong
        self.forged |= wrong
        for first, end in sorted([*runs(exact), *among]):
            self.say("forged" if first in exact else "forged among", first=first, end=end)

    # Section 6: requests and answers.

    def requests(self):
        epoch, asked = variable(self.epoch), self.lost
        if asked:
            yield b"\x11" + epoch + gap_list(asked)
        for i, w in sorted(self.windows.items()):
            head = epoch + variable(i) + variable(self.claim(i)[0] or WINDOW)
            if w.unresolved and w.groups is None:
                yield b"\x12" + head
            elif w.unresolved:
                yield from (b"\x13" + head + variable(g) for g in sorted(w.differs))

    def answer(self, kind, r):
        if kind == 1:
            return  # it proves nothing
        i, size = r.variable(), r.variable()
        w, first, told = self.window(i), i * WINDOW, self.claim(i)
        if kind not in (2, 3) or not w.unresolved or size != (told[0] or WINDOW):
            raise Refused("an answer that nobody asked for")
        if kind == 2:
            groups = [r.take(16) for _ in range(0, size, GROUP)]
            if root(groups) != told[1] and (told[1] or not self.lane_root_holds(i, root(groups))):
                raise Refused("an answer that does not fold to the root")
            w.groups = groups
            w.differs = {g for g, h in enumerate(groups)
                         if self.own_root(first + g * GROUP, min(GROUP, size - g * GROUP)) != h}
        else:
            g = r.variable()
            leaves = [r.take(16) for _ in range(min(GROUP, size - g * GROUP))]
            if g not in w.differs or root(leaves) != w.groups[g]:
                raise Refused("an answer that does not fold to the root")
            w.differs.discard(g)
            self.forge(dict(enumerate(leaves, first + g * GROUP)))
            if not w.differs:
                w.unresolved, w.groups = False, None
            self.evaluate(i)
        r.end()


def longest(stretch):
    """The numbers of the longest increasing subsequence that stays where it was."""
    if all(on_time for _, on_time in stretch):
        return {n for n, _ in stretch}
    best = []  # of each message as the last: (length, on time, its number negated) and the one before
    for i, (n, on_time) in enumerate(stretch):
        before = max((j for j in range(i) if stretch[j][0] < n), key=lambda j: best[j][0], default=None)
        length, timely, _ = (0, 0, 0) if before is None else best[before][0]
        best.append(((length + 1, timely + on_time, -n), before))
    at, stays = max(range(len(best)), key=lambda j: best[j][0]), set()
    while at is not None:
        stays.add(stretch[at][0])
        at = best[at][1]
    return stays


class Receiver:
    def __init__(self, join, all_lanes):
        self.join, self.all_lanes = join, all_lanes
        self.now, self.wall, self.running = 0, 0, True  # `now` is the clock of lateness
        self.epochs, self.events, self.topics = {}, [], set()
        self.directories, self.listed, self.begin = {}, {}, {}
        self.heard = set()  # epochs of which messages came
        self.unlisted = {}  # epochs that no directory has listed: since when they are known

    def tick(self, at):
        self.now += at - self.wall if self.running else 0
        self.wall = at

    def open(self, lane, epoch, at):
        """The epoch, whose first sign is a number seen or a size told."""
        key = lane, epoch
        if key not in self.epochs:
            known = any(known[0] == lane and known != key for known in (*self.heard, *self.listed))
            scope = 0 if known else self.begin.get(key, -(-at // WINDOW) * WINDOW)
            e = self.epochs[key] = Epoch(self, lane, epoch, scope if self.join == "late" else 0)
            if key not in self.listed:
                self.unlisted[key] = self.now
            if e.scope:
                e.say("out of scope", below=e.scope)
        return self.epochs[lane, epoch]

    def message(self, topic, payload, stamps, retained=False):
        if retained:
            return None
        if not stamps:
            return "injected" if topic in self.topics else None
        self.topics.add(topic)
        try:
            p = Property(stamps[0])
        except (Refused, ValueError):
            return "injected"
        if len(stamps) > 1:
            return "injected"
        if p.algorithm != 1:
            return "not audited"
        key, fits = (p.lane, p.epoch), p.fits(topic.encode(), payload.encode())
        if self.requires_directories() and key not in self.listed:
            return "injected"
        if not fits and key not in self.epochs:
            return "injected"
        e = self.open(*key, p.number)
        if fits:
            self.heard.add(key)
        return "out of scope" if p.number < e.scope else e.message(p, fits)

    def requires_directories(self):
        return self.all_lanes and self.join == "beginning"

    def checkpoint(self, data):
        c = Checkpoint(data)
        if not c.lane:
            return self.directory(c, data)
        elif self.requires_directories() and (c.lane, c.epoch) not in self.listed:
            return
        elif not c.cut or (c.lane, c.epoch) in self.epochs:
            self.open(c.lane, c.epoch, c.size).checkpoint(c)

    def directory(self, d, data):
        # The newest, the last that contradicts it, how many did, and the last ones that were taken.
        newest, other, wrong, taken = self.directories.get(d.producer, (None, None, 0, []))
        if data in [copy for _, copy in taken]:
            return False
        at, last, is_contradiction = (d.start, d.number), newest, False
        if newest and at <= (newest.start, newest.number):
            is_split = d.start == newest.start or at in [place for place, _ in taken]
            last, other, before = other, d, wrong
            wrong = max(wrong + 1, 2 if is_split else 0)
            is_contradiction = before < 2 <= wrong
        else:
            newest, other = d, newest if newest and d.start > newest.start else other
        self.directories[d.producer] = newest, other, wrong, [*taken, (at, data)][-DIRECTORIES:]
        for lane, (epoch, size) in d.lanes.items():
            key = lane, epoch
            self.listed.setdefault(key, d.producer)
            self.unlisted.pop(key, None)
            if key not in self.epochs and (self.all_lanes or not size):
                self.begin.setdefault(key, -(-size // WINDOW) * WINDOW)
            if key in self.epochs or self.all_lanes:
                e = self.open(lane, epoch, size)
                e.ended = False
                if e.closed is None:  # of an epoch that has ended a directory tells nothing
                    e.cover(size)
        counting = [d for newest, other, wrong, _ in self.directories.values() for d in (newest, wrong and other) if d]
        listed = {(lane, epoch) for d in counting for lane, (epoch, _) in d.lanes.items()}
        for lane, (epoch, _) in (last.lanes if last else {}).items():
            e = self.epochs.get((lane, epoch))
            if e and (lane, epoch) not in listed and e.closed is None and not e.ended:
                e.say("unlisted")
        return is_contradiction

    def drop(self, data):
        lane, epoch, leaves = read_drop(data)
        if not self.requires_directories() or (lane, epoch) in self.listed:
            self.open(lane, epoch, min(leaves)).drop(leaves)

    def answer(self, lane, data):
        r = Reader(data)
        head, epoch = r.int(1), r.variable()
        if head >> 4 != 1 or (lane, epoch) not in self.epochs:
            raise Refused("an answer that nobody asked for")
        self.epochs[lane, epoch].answer(head & 15, r)

    def time(self):
        for key in sorted(self.epochs):
            self.epochs[key].time()
        for key in [key for key, since in self.unlisted.items() if self.now - since >= ANNOUNCED]:
            del self.unlisted[key]
            self.events.append({"event": "unannounced", "lane": f"{key[0]:016x}"})


# The conformance set.

def issued(step):
    """The messages of a step as their producer issued them."""
    topic = step["topic"].encode()
    for n in range(step["first"], step["last"] + 1):
        covered = step["epoch"].to_bytes(4, "big") + bytes.fromhex(step["lane"]) + n.to_bytes(8, "big")
        digest = leaf(covered + len(topic).to_bytes(4, "big") + topic + b"21.%d" % n)
        stamp = base64.urlsafe_b64encode(b"\x11\0\0\0" + covered + digest).rstrip(b"=").decode()
        yield step["topic"], f"21.{n}", [stamp]


def run(receiver, step):
    """A step: for each thing that is compared its name, what it is, and what it is to be."""
    receiver.tick(step["at_ms"])
    receiver.events, is_, to_be = [], None, None
    if "message" in step:
        m = step["message"]
        is_ = receiver.message(m["topic"], m["payload"], m["audit"], m.get("retained", False))
        to_be = step["verdict"]
    elif "issued" in step:
        is_ = [receiver.message(*m) for m in issued(step["issued"])]
        to_be = [verdict for verdict, count in step["verdicts"] for _ in range(count)]
    elif "requests" in step:
        is_ = [q.hex() for _, e in sorted(receiver.epochs.items()) for q in e.requests()]
        to_be = step["requests"]
    elif "answer" in step:
        is_, to_be = False, step.get("refused", False)
        try:
            receiver.answer(int(step["lane"], 16), bytes.fromhex(step["answer"]))
        except Refused:
            is_ = True
    elif "clock" in step:
        receiver.running = step["clock"] == "runs"
    elif "time" in step:
        receiver.time()
    elif "drop" in step:
        receiver.drop(bytes.fromhex(step["drop"]))
    else:
        is_ = bool(receiver.checkpoint(bytes.fromhex(step.get("checkpoint") or step["directory"])))
        to_be = step.get("contradicts", False)
    yield "verdict", is_, to_be
    yield "events", by_epoch(receiver.events), by_epoch(step.get("events", []))


def by_epoch(events):
    """Events by lane and epoch, and within one in the order in which they became known."""
    return sorted(events, key=lambda e: (e["lane"], e.get("epoch", 1 << 32)))


def holds_more(is_, to_be):
    """Whether two verdicts differ only in that one end still holds the leaf of the first copy."""
    both = {is_, to_be}
    return "repeated" in both and both <= {"repeated", "duplicate", "conflict"}


def check(case, exact=True):
    """The first difference of a case, or None. Unless it is to be exact, what follows from a leaf that one end
    holds longer is not compared."""
    receiver = Receiver(case["join"], case["all_lanes"])
    for i, step in enumerate(case["steps"]):
        try:
            for what, is_, to_be in run(receiver, step):
                if what == "verdict" and not exact and ("message" in step or "issued" in step):
                    ones = zip(is_, to_be) if "issued" in step else [(is_, to_be)]
                    if any(holds_more(*one) for one in ones):
                        return None
                if is_ != to_be:
                    return f"step {i}, {what}: is {is_}, is to be {to_be}"
        except Refused as reason:
            return f"step {i} is refused: {reason}"
    return None


def main():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "verdicts.json")
    cases, failed = [], 0
    for path in sys.argv[1:] or [default]:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
            cases += [(case, read.get("exact", True)) for case in read["cases"]]
    for case, exact in cases:
        difference = check(case, exact)
        if difference:
            failed += 1
            print(f"{case['name']}: {difference}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
