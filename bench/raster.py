"""PNGs of pictures: `python bench/raster.py [SVG…]` writes each beside its SVG; without arguments the main screens in docs/images.

Every PNG carries the SHA-256 of the SVG it was drawn from, so that a test tells whether it is still that of the SVG without drawing it
anew: glyphs are those of the DejaVu fonts of the machine, whose bytes may differ elsewhere. Needs resvg-py, which `make figures` installs.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from pathlib import Path

IMAGES = Path(__file__).parent.parent / "docs" / "images"
FONTS = Path("/usr/share/fonts/truetype/dejavu")
FACES = ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSans.ttf", "DejaVuSans-Bold.ttf")
MAIN = ("overview", "turns", "plot", "memory", "experts", "watchdog")  # screens of the dashboard
WIDTH = 1200  # pixels of a screen
KEY = b"svg-sha256"


def png_of(svg: Path) -> bytes:
    """The picture, with the hash of its source. Ends the program where fonts or resvg-py are not there."""
    faces = [str(FONTS / face) for face in FACES if (FONTS / face).exists()]
    if len(faces) != len(FACES):
        sys.exit(f"raster: the DejaVu fonts are not in {FONTS}: apt-get install fonts-dejavu-core fonts-dejavu-extra")
    try:
        import resvg_py
    except ImportError:
        sys.exit("raster: resvg-py is not installed: pip install resvg-py==0.5.0")
    drawn = resvg_py.svg_to_bytes(
        svg_string=svg.read_text(encoding="utf-8"),
        width=WIDTH,
        skip_system_fonts=True,
        font_files=faces,
        font_family="DejaVu Sans Mono",
        monospace_family="DejaVu Sans Mono",
        sans_serif_family="DejaVu Sans",
    )
    return signed(bytes(drawn), digest(svg))


def digest(svg: Path) -> str:
    return hashlib.sha256(svg.read_bytes()).hexdigest()


def signed(png: bytes, text: str) -> bytes:
    """The PNG with `text` as a chunk behind its header."""
    body = b"tEXt" + KEY + b"\0" + text.encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    header = 8 + 25  # signature and IHDR
    return png[:header] + chunk + png[header:]


def signature(png: bytes) -> str | None:
    """The hash that `signed` wrote; None where there is none."""
    at = png.find(b"tEXt" + KEY + b"\0")
    start = at + 5 + len(KEY)
    return None if at < 0 else png[start : start + 64].decode()


def main_screens() -> list[Path]:
    return [IMAGES / f"dashboard-{name}.svg" for name in MAIN]


def main() -> int:
    pictures = [Path(name) for name in sys.argv[1:]] or main_screens()
    drawn = 0
    for svg in pictures:
        png = svg.with_suffix(".png")
        if not png.exists() or signature(png.read_bytes()) != digest(svg):
            png.write_bytes(png_of(svg))
            drawn += 1
    print(f"{len(pictures)} pictures, {drawn} drawn anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
