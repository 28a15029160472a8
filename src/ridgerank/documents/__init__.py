"""Files become pages: `sources` finds them, `pdf`, `images`, `text` and `ocr` read them, `render` drives all.

What cannot be read becomes a `Failure` at its position.
"""
