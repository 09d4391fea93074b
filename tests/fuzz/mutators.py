"""Ways to spoil a valid file. Each is a function of its bytes and a random generator."""

import gzip
import io
import json
import random
import re
import struct
import zipfile

NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483648",
    b"9223372036854775807",
    b"99999999999999999999",
    b"1e400",
)
TEXTS = (
    b"nan",
    b"inf",
    b"-inf",
    b"1_0",
    b'"',
    b",",
    b"\n",
    b"\x00",
    b"\xff\xfe",
    b"0x10",
    b"",
    b"\xef\xbc\x91",
    b"1e-320",
)
NASTY = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 10**400, -(2**63), 0.5, 1e308, 1e-320, float("nan"), float("inf"), "",
    "x", "0", "../..", "\x1b[2J", "[bold]", "\ud800", [], {}, [0], {"a": 1}, [[[]]] * 3, "gym:CartPole-v1", "lock", "tensor",
)  # fmt: skip
"""JSON values in place of others."""


def flip(content, rng):
    """One to four bits."""
    spoilt = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if spoilt:
            spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def truncate(content, rng):
    return content[: rng.randrange(len(content) + 1)]


def extend(content, rng):
    return content + rng.choice((b"\0", b"\n", content, rng.randbytes(rng.randint(1, 100))))


def splice(content, rng):
    """A piece of the file over, or between, another piece of it."""
    a, b, c = (rng.randrange(len(content) + 1) for _ in range(3))
    piece = content[min(a, b) : max(a, b)][:1000]
    return content[:c] + piece + content[c + rng.choice((0, len(piece))) :]


def cut(content, rng):
    a = rng.randrange(len(content) + 1)
    return content[:a] + content[a + rng.randint(1, 64) :]


def overwrite(content, rng):
    """Extreme words of 1 to 8 bytes: sizes and offsets, most of all."""
    spoilt, size = bytearray(content), rng.choice((1, 2, 4, 8))
    a = rng.randrange(max(1, len(spoilt) - size + 1))
    spoilt[a : a + size] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * size
    return bytes(spoilt)


def number(content, rng):
    """Another number in place of one that is written in digits."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    if not found:
        return flip(content, rng)
    here = rng.choice(found)
    return content[: here.start()] + rng.choice(NUMBERS + TEXTS) + content[here.end() :]


def insert(content, rng):
    a = rng.randrange(len(content) + 1)
    return content[:a] + rng.choice(NUMBERS + TEXTS) + content[a:]


BYTES = (flip, flip, truncate, extend, splice, cut, overwrite, overwrite)
TEXT = (*BYTES, number, number, insert)


def any_of(mutators):
    def mutate(content, rng):
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            content = rng.choice(mutators)(content, rng)
        return content

    return mutate


def in_gzip(content, rng):
    """The text itself, packed again as it should be."""
    return gzip.compress(any_of(TEXT)(gzip.decompress(content), rng))


def in_zip(content, rng):
    """One array, its header more often than its numbers, with the right checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(entries))
    head, numbers = entries[name][:128], entries[name][128:]
    part = rng.randrange(4)
    if part < 3:
        head = any_of(TEXT)(head, rng)
    if part > 1:
        numbers = any_of(BYTES)(numbers, rng)
    entries[name] = head + numbers
    if rng.random() < 0.1:
        del entries[name]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for key, value in entries.items():
            archive.writestr(key, value)
    return packed.getvalue()


def _places(tree, place=()):
    yield place
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from _places(value, (*place, key))


def spoil_tree(tree, rng):
    """One value replaced, deleted or moved."""
    places = list(_places(tree))
    place = rng.choice(places)
    value = rng.choice(NASTY)
    if rng.random() < 0.2:  # what belongs elsewhere
        value = tree
        for key in rng.choice(places):
            value = value[key]
    if not place:
        return value
    tree = json.loads(json.dumps(tree))
    inner = tree
    for key in place[:-1]:
        inner = inner[key]
    if rng.random() < 0.2:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return tree


def written(tree, rng):
    text = json.dumps(tree)
    if rng.random() < 0.02:
        text = "[" * 100_000
    return text.encode(errors="surrogatepass")


def in_json(content, rng):
    return written(spoil_tree(json.loads(content), rng), rng)


def in_json_lines(content, rng):
    lines = content.splitlines()
    here = rng.randrange(len(lines))
    lines[here] = in_json(lines[here], rng).replace(b"\n", b" ")
    return b"\n".join(lines) + b"\n"


def in_safetensors(content, rng):
    """The header, with the size that belongs to it."""
    size = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8 : 8 + size])
    about = head.get("__metadata__")
    if about and rng.random() < 0.5:  # hyrlo's own header within
        about["hyrlo"] = in_json(about["hyrlo"].encode(), rng).decode(errors="replace")
        spoilt = json.dumps(head).encode()
    else:
        spoilt = written(spoil_tree(head, rng), rng)
    return struct.pack("<Q", len(spoilt)) + spoilt + content[8 + size :]


def generator(*parts):
    """The same numbers for the same parts, in every process."""
    return random.Random("/".join(map(str, parts)))
