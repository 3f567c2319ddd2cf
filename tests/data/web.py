"""A web server on this machine that gives some files, and misbehaves as it is told."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Files by path; what was asked for; and how the server behaves.

    breaks_after: bytes of a body after which it closes the connection. status: an error it answers with.
    ranges: whether it gives parts. tag: the ETag of every file. moved: paths that lead to others.
    """

    def __init__(self):
        self.files, self.asked, self.moved = {}, [], {}
        self.breaks_after = self.status = self.starts_at = None
        self.ranges, self.tag = True, '"one"'
        self.address = ""


@contextmanager
def served():
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            web.asked.append((self.path, asked))
            if web.status is not None:
                self.send_error(web.status)
            elif self.path in web.moved:
                self.send_response(302)
                self.send_header("Location", web.moved[self.path])
                self.end_headers()
            else:
                self.give(web.files[self.path], asked)

        def give(self, body, asked):
            start = 0
            if asked and web.ranges and self.headers.get("If-Range") == web.tag:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            if start:
                shown = start if web.starts_at is None else web.starts_at
                self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
            if web.tag is not None:
                self.send_header("ETag", web.tag)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            stop = len(body) if web.breaks_after is None else start + web.breaks_after
            self.wfile.write(body[start:stop])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
