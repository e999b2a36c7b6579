#!/usr/bin/env python3
"""Fetches six novels by Jane Austen as plain text: scripts/fetch_novels.py DIRECTORY

Debian's package r-cran-janeaustenr carries them (public domain, from Project Gutenberg) as one R
lazy-load database. This downloads the package with `apt-get download`, unpacks it beside the
target, and writes each novel as its lines joined by newlines. A file is written complete or not at
all, only where its SHA-256 is the expected one; a file that is already there and right is kept, and
nothing is downloaded where all are. Needs the Python package `rdata`.
"""

import bz2
import hashlib
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zlib

PACKAGE = "r-cran-janeaustenr"
DATA = "usr/lib/R/site-library/janeaustenr/data"
NOVELS = {
    "emma": "7c67b5985c6d0de1efaeb5d342d52cb82c38083c40e2295129e30e87ee690ebe",
    "mansfieldpark": "98bc90519cdf4ef663ad7de2734bb529435ef24f7abbde6bb1a50898871dafe9",
    "northangerabbey": "51f91bbe0517db8e65cff009b097ce0a1836124c4e0532ac19e6c0cad982abed",
    "persuasion": "8061549557aebd2fd6e353d18d9197cb707029112bd52d4d8b174583a925848a",
    "prideprejudice": "dfc684d4f857fa938268f9ab9c5567b64bd0691251eca959644adeabe6287a4d",
    "sensesensibility": "105e1651fe93bed7130078578efd31e0c557d68667ba672ddc876f735b30fe09",
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_right(path, digest):
    return path.is_file() and sha256(path.read_bytes()) == digest


def download(directory):
    """Unpacks the package below `directory` and returns the folder of its database."""
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=directory, check=True)
    debs = sorted(directory.glob(f"{PACKAGE}_*.deb"))
    if len(debs) != 1:
        raise RuntimeError(f"apt-get download left {len(debs)} packages where one was expected")
    subprocess.run(["dpkg", "-x", str(debs[0]), str(directory / "root")], check=True)
    return directory / "root" / DATA


def unpack(record):
    """The serialised R object in a database record: big-endian length, then compressed bytes.

    Plain zlib data follow the length at once; other methods announce themselves with a letter.
    """
    size = int.from_bytes(record[:4], "big")
    if record[4:5] == b"2":
        data = bz2.decompress(record[5:])
    elif record[4:5] == b"Z":
        data = lzma.decompress(record[5:], format=lzma.FORMAT_AUTO)
    else:
        data = zlib.decompress(record[4:])
    if len(data) != size:
        raise RuntimeError(f"a database record holds {len(data)} bytes where it states {size}")
    return data


def read_lines(database, name, directory):
    """The lines of a novel, from Rdata.rdb at the place that Rdata.rdx gives."""
    import rdata

    index = rdata.read_rds(database / "Rdata.rdx")["variables"]
    places = {str(key): value for key, value in index.items()}
    if name not in places:
        raise RuntimeError(f"the package's database holds no {name}")
    offset, length = (int(x) for x in places[name])
    with open(database / "Rdata.rdb", "rb") as file:
        file.seek(offset)
        record = file.read(length)
    plain = directory / f"{name}.rds"
    plain.write_bytes(unpack(record))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata warns where R did not record an encoding
        return [str(line) for line in rdata.read_rds(plain, default_encoding="utf-8")]


def write_whole(path, data):
    """Writes aside, syncs, then renames: the file is there complete or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main(arguments):
    if len(arguments) != 2 or arguments[1].startswith("-"):
        print(__doc__.strip().splitlines()[0], file=sys.stderr)
        return 2
    target = pathlib.Path(arguments[1])
    target.mkdir(parents=True, exist_ok=True)
    missing = [n for n, d in NOVELS.items() if not is_right(target / f"{n}.txt", d)]
    if not missing:
        print(f"all {len(NOVELS)} novels are in {target}")
        return 0
    with tempfile.TemporaryDirectory(prefix=".novels.", dir=target) as temporary:
        temporary = pathlib.Path(temporary).resolve()
        database = download(temporary)
        for name in missing:
            data = ("\n".join(read_lines(database, name, temporary)) + "\n").encode("utf-8")
            if sha256(data) != NOVELS[name]:
                raise RuntimeError(
                    f"{name}: SHA-256 is {sha256(data)}, expected {NOVELS[name]}: "
                    f"the package {PACKAGE} holds another edition; nothing was written"
                )
            write_whole(target / f"{name}.txt", data)
            print(f"{target / name}.txt: {len(data)} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except (RuntimeError, OSError, ImportError, subprocess.CalledProcessError) as error:
        print(f"fetch_novels: {error}", file=sys.stderr)
        sys.exit(1)
