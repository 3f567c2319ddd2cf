"""Tables, curves and graphs as HTML and SVG.

The output needs no library, no script and no network, so a page made of it can be opened anywhere.
"""
