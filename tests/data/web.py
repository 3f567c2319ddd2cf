"""A web server on this machine that gives some files, and misbehaves as it is told."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Files by path; what was asked for; and how the server behaves.

    breaks_after: bytes of a body after which it closes the connection. status: an error it answers with.
    moved: paths that lead to others.
    """

    def __init__(self):
        self.files, self.asked, self.moved = {}, [], {}
        self.breaks_after = self.status = None
        self.address = ""


@contextmanager
def served():
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            web.asked.append(self.path)
            if web.status is not None:
                self.send_error(web.status)
            elif self.path in web.moved:
                self.send_response(302)
                self.send_header("Location", web.moved[self.path])
                self.end_headers()
            else:
                self.give(web.files[self.path])

        def give(self, body):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: web.breaks_after])

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
