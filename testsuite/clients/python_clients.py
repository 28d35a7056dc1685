"""A session each of rdflib's stores and of SPARQLWrapper with a server: python_clients.py CLIENT URL."""

import sys
from decimal import Decimal

LABELS = """PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?s ?label ?radius ?moons { ?s rdfs:label ?label ; <http://example.org/radius> ?radius ;
<http://example.org/moons> ?moons FILTER(lang(?label) = "en") } ORDER BY ?label"""
NOTE = 'a "quoted" <note> & more,\nin two lines'


def rdflib_store(url):
    from rdflib import Graph, Literal, URIRef
    from rdflib.plugins.stores.sparqlstore import SPARQLStore

    for method in ("GET", "POST", "POST_FORM"):
        for accept in ("xml", "json", "csv", "tsv"):
            store = SPARQLStore(url, method=method, returnFormat=accept)
            rows = list(store.query(LABELS))
            assert [str(row[1]) for row in rows] == ["Ceres", "Pluto"], (method, accept, rows)
            if accept in ("xml", "json"):
                assert rows[0][1] == Literal("Ceres", lang="en")
                assert rows[0][2].toPython() == Decimal("469.7")
                assert rows[1][3].toPython() == 5
    graph = Graph(SPARQLStore(url), identifier=URIRef("http://example.org/survey"))
    assert len(list(graph.triples((None, None, None)))) == 4
    store = SPARQLStore(url)
    ceres = URIRef("http://example.org/ceres")
    found = list(store.triples((ceres, URIRef("http://example.org/note"), None)))
    assert str(found[0][0][2]) == NOTE, found
    assert len(store) == 15, len(store)
    described = store.query("DESCRIBE <http://example.org/pluto>").graph
    assert len(described) == 7, len(described)
    made = store.query("CONSTRUCT { ?s a <http://example.org/World> } { ?s a ?t }").graph
    assert len(made) == 2
    assert store.query("ASK { ?s ?p 5 }").askAnswer is True


def sparql_wrapper(url):
    from SPARQLWrapper import CSV, GET, JSON, JSONLD, N3, POST, POSTDIRECTLY, RDFXML, TSV, TURTLE, XML
    from SPARQLWrapper import SPARQLWrapper
    from SPARQLWrapper.SPARQLExceptions import QueryBadFormed

    wrapper = SPARQLWrapper(url)
    for method, how in ((GET, None), (POST, None), (POST, POSTDIRECTLY)):
        wrapper.setMethod(method)
        if how:
            wrapper.setRequestMethod(how)
        wrapper.setQuery(LABELS)
        wrapper.setReturnFormat(JSON)
        rows = wrapper.queryAndConvert()["results"]["bindings"]
        assert [row["label"]["value"] for row in rows] == ["Ceres", "Pluto"]
        assert rows[0]["label"]["xml:lang"] == "en"
        assert rows[0]["radius"]["datatype"].endswith("#decimal")
        wrapper.setReturnFormat(XML)
        nodes = wrapper.queryAndConvert().getElementsByTagName("binding")
        assert len(nodes) == 8
        for form, separator in ((CSV, b","), (TSV, b"\t")):
            wrapper.setReturnFormat(form)
            lines = wrapper.queryAndConvert().splitlines()
            assert len(lines) == 3 and lines[0].count(separator) == 3, lines
    wrapper = SPARQLWrapper(url)
    wrapper.setQuery("CONSTRUCT { ?s a <http://example.org/World> } { ?s a ?t }")
    for form in (RDFXML, JSONLD):
        wrapper.setReturnFormat(form)
        assert len(wrapper.queryAndConvert()) == 2, form
    for form in (TURTLE, N3):
        wrapper.setReturnFormat(form)
        assert b"http://example.org/World" in wrapper.queryAndConvert(), form
    wrapper = SPARQLWrapper(url)
    wrapper.addDefaultGraph("http://example.org/survey")
    wrapper.setQuery("SELECT * { ?s ?p ?o }")
    wrapper.setReturnFormat(JSON)
    assert len(wrapper.queryAndConvert()["results"]["bindings"]) == 4
    wrapper.setQuery("ASK { ?s ?p 1 }")
    assert wrapper.queryAndConvert()["boolean"] is True
    wrapper.setQuery("SELECT * { ?s ?p }")
    try:
        wrapper.query()
    except QueryBadFormed as error:
        assert "line 1" in str(error), error
    else:
        raise AssertionError("a syntax error was not reported")


def rdflib_update(url):
    from rdflib import Dataset, Graph, Literal, URIRef
    from rdflib.plugins.stores.sparqlstore import SPARQLUpdateStore

    s, p, q = (URIRef("http://example.org/" + name) for name in "spq")
    name = URIRef("http://example.org/updated")
    for method in ("POST", "GET"):
        store = SPARQLUpdateStore(url, url, method=method, autocommit=False)
        graph = Graph(store, identifier=name)
        graph.add((s, p, Literal("one")))
        graph.addN((s, q, Literal(number), graph) for number in range(100))
        store.commit()
        assert len(graph) == 101, len(graph)
        graph.remove((s, q, None))
        assert len(graph) == 1, "an uncommitted change is sent before a query"
        graph.add((s, p, Literal("two")))
        store.rollback()
        assert set(graph) == {(s, p, Literal("one"))}, set(graph)
        store.update("DELETE WHERE { GRAPH ?g { ?s <http://example.org/p> 'one' } }")
        store.commit()
        assert len(graph) == 0
        dataset = Dataset(SPARQLUpdateStore(url, url))
        # It sends CREATE, which fails for a graph that there is.
        made = dataset.graph(name)
        made.add((s, p, Literal(NOTE)))
        assert [str(o) for o in made.objects(s, p)] == [NOTE]
        dataset.remove_graph(made)
        assert len(graph) == 0


clients = {"rdflib": rdflib_store, "sparqlwrapper": sparql_wrapper, "rdflib-update": rdflib_update}
clients[sys.argv[1]](sys.argv[2])
