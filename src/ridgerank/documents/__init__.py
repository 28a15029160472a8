"""Files become pages: PDFs, images, folders of both.

`sources` finds files and gives their pages ids by content, `pdf` and `images` read them, `text` puts a PDF's
text layer in reading order, `ocr` recognizes the text of pages that have none, and `render` has the public
functions and spreads work over processes. What cannot be read becomes a `Failure` at its position.
"""
