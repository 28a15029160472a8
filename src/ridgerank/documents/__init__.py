"""Files become pages: PDFs, images, folders of both.

`pages` is the door; behind it, in the order a file meets them: `sources` finds files, `identity` names
their pages by content, `pdf` and `images` read them at the size `shape` allows, `crew` spreads the work
over processes. A PDF's text layer is put in order by `pdf_text` and `reading_order`; `ocr` reads pages that
have none. What cannot be read becomes a `Failure` (`outcomes`) in its place in the stream.
"""
