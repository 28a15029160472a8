"""Files become pages: PDFs, images, folders of both."""
