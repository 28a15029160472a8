"""Files made on the spot, byte by byte: whole PDFs, PDFs broken in known ways, images that lie."""

import struct
import zlib
from collections.abc import Sequence


def page(
    text: str = "", *, box: str = "0 0 612 792", crop: str | None = None, paint: str = "", extra: str = ""
) -> tuple[str, str]:
    """A page's dictionary entries and its content: `text` at the middle, `paint` as drawing operators."""
    content = f"{paint}\nBT /F1 24 Tf 100 400 Td 30 TL\n" + "".join(
        f"({line}) ' " for line in text.split("\n")
    )
    entries = f"/MediaBox [{box}] {f'/CropBox [{crop}]' if crop else ''} {extra}"
    return entries, f"{content}\nET"


def pdf(pages: Sequence[tuple[str, str]], *, trailer: str = "", more: Sequence[str] = ()) -> bytes:
    """A whole PDF. `more` are further objects, numbered from 4 + 2 * the number of pages."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, (entries, content) in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R {entries} /Contents {5 + 2 * index} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.extend(more)
    document = b"%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(document))
        document += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    cross_reference = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return document + (
        f"{cross_reference}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\n"
        f"startxref\n{len(document)}\n%%EOF\n"
    ).encode("latin-1")


def numbered_pdf(count: int, *, title: str = "report") -> bytes:
    return pdf([page(f"{title} page {number}") for number in range(1, count + 1)])


def encrypted_pdf(*, security_handler: str = "Standard") -> bytes:
    encrypt = (
        f"<< /Filter /{security_handler} /V 1 /R 2 /Length 40 /P -44 /O <{'5a' * 32}> /U <{'a5' * 32}> >>"
    )
    return pdf([page("secret")], trailer=f"/Encrypt 6 0 R /ID [<{'00' * 16}> <{'00' * 16}>]", more=[encrypt])


def png_bomb(side: int, *, text: bytes = b"") -> bytes:
    """A small PNG file that claims to be large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(min(side * (side + 1), 10_000_000)), 9)
    parts = [chunk(b"IHDR", header), chunk(b"zTXt", text) if text else b"", chunk(b"IDAT", rows)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")
