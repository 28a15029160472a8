"""Files become pages: PDFs, images, folders of both.

`pages` holds the public functions. Behind it, in the order in which a file meets them: `sources` finds files,
`identity` gives their pages ids by content, `pdf` and `images` read them at the size `limits` allows, and
`worker_pool` spreads the work over processes. `pdf_text` and `reading_order` put a PDF's text layer in order;
`ocr` recognizes the text of pages that have none. What cannot be read becomes a `Failure` (`failures`) at its
position in the stream.
"""
