"""What the tests of HTML share: a parser that refuses what is not balanced, and says what a page holds."""

from html.parser import HTMLParser

WITHOUT_END = {"br", "input", "link", "meta"}
LOADS = {"src", "href", "srcset", "data", "action", "xlink:href"}
"""Attributes by which a page asks for more."""


class Page(HTMLParser):
    """The elements of some HTML: their names, attributes and text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts = [], [], {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in WITHOUT_END:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    @property
    def names(self):
        """The names of all elements, without repeats."""
        return {tag for tag, _ in self.elements}

    @property
    def text(self):
        """All text, a piece a line."""
        return "\n".join(text for texts in self.texts.values() for text in texts)

    def count(self, tag):
        """How many elements have that name."""
        return sum(found == tag for found, _ in self.elements)


def check_alone(html):
    """Fail where a page would run a script or ask the network for anything."""
    page = Page(html)
    assert "script" not in page.names
    asking = [
        (tag, key)
        for tag, attributes in page.elements
        for key in attributes
        if key in LOADS or key.startswith("on")
    ]
    assert asking == []
    styles = "".join(page.texts.get("style", []))
    assert "url(" not in styles
    assert "@import" not in styles
    return page
