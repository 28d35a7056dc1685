"""Answers every query with nothing, and writes it down: record.py FILE

A query is a line of FILE, percent-encoded. The first line on standard output is the address.
"""
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, quote, urlsplit

SOLUTIONS = b'<sparql xmlns="http://www.w3.org/2005/sparql-results#"><head/><results/></sparql>'
GRAPH = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>'


class Recorder(BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        written.write(quote(query) + "\n")
        written.flush()
        is_graph = re.search(r"^\s*(CONSTRUCT|DESCRIBE)\b", query, re.MULTILINE)
        kind, body = ("rdf+xml", GRAPH) if is_graph else ("sparql-results+xml", SOLUTIONS)
        self.send_response(200)
        self.send_header("Content-Type", "application/" + kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


with open(sys.argv[1], "w", encoding="ascii") as written, HTTPServer(("127.0.0.1", 0), Recorder) as server:
    print(f"http://127.0.0.1:{server.server_port}/sparql", flush=True)
    server.serve_forever()
