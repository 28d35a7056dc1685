import java.io.StringReader;
import java.util.List;
import org.eclipse.rdf4j.common.transaction.IsolationLevels;
import org.eclipse.rdf4j.model.BNode;
import org.eclipse.rdf4j.model.IRI;
import org.eclipse.rdf4j.model.Literal;
import org.eclipse.rdf4j.model.Resource;
import org.eclipse.rdf4j.model.Statement;
import org.eclipse.rdf4j.model.util.Values;
import org.eclipse.rdf4j.query.MalformedQueryException;
import org.eclipse.rdf4j.query.QueryEvaluationException;
import org.eclipse.rdf4j.repository.RepositoryConnection;
import org.eclipse.rdf4j.repository.RepositoryException;
import org.eclipse.rdf4j.repository.http.HTTPRepository;
import org.eclipse.rdf4j.rio.RDFFormat;
import org.eclipse.rdf4j.rio.RDFParseException;

/** A session of RDF4J's HTTPRepository, which writes; the argument is the address of the server. */
public final class Rdf4jRepository {
    private static final IRI S = Values.iri("http://example.org/s");
    private static final IRI P = Values.iri("http://example.org/p");
    private static final IRI Q = Values.iri("http://example.org/q");
    private static final IRI G = Values.iri("http://example.org/made");

    public static void main(String[] arguments) throws Exception {
        HTTPRepository repository = new HTTPRepository(arguments[0], "default");
        check(repository.isWritable(), "writable");
        try (RepositoryConnection connection = repository.getConnection();
                RepositoryConnection other = repository.getConnection()) {
            long before = connection.size();
            namespaces(connection);
            statements(connection);
            transactions(connection, other);
            clashes(connection, other);
            documents(connection);
            queries(connection);
            connection.clear(G);
            check(connection.size() == before, "size at the end");
        }
        repository.shutDown();
    }

    private static void namespaces(RepositoryConnection connection) {
        connection.setNamespace("made", "http://example.org/made#");
        connection.setNamespace("", "http://example.org/");
        check("http://example.org/made#".equals(connection.getNamespace("made")), "namespace");
        check(connection.getNamespaces().stream().count() == 2, "namespaces");
        connection.removeNamespace("made");
        check(connection.getNamespace("made") == null, "removed namespace");
        connection.clearNamespaces();
        check(connection.getNamespaces().stream().count() == 0, "cleared namespaces");
    }

    /** Each call is a transaction of its own. */
    private static void statements(RepositoryConnection connection) {
        connection.add(S, P, Values.literal("1"), G);
        BNode node = Values.bnode();
        connection.add(node, P, Values.literal("2"), G);
        connection.add(node, Q, Values.literal("3"), G);
        check(connection.size(G) == 3, "size of a graph");
        check(connection.getContextIDs().stream().anyMatch(G::equals), "contexts");
        Resource shown;
        try (var found = connection.getStatements(null, Q, null, G)) {
            shown = found.next().getSubject();
        }
        check(connection.getStatements(shown, null, null, G).stream().count() == 2, "blank node in one piece");
        connection.add(shown, P, node, G);
        check(connection.hasStatement(shown, P, shown, false, G), "blank nodes are the same");
        connection.remove(shown, null, null, G);
        check(connection.size(G) == 1, "removed by pattern");
        connection.remove(S, P, Values.literal("1"));
        check(connection.size(G) == 0, "removed from every graph");
    }

    private static void transactions(RepositoryConnection connection, RepositoryConnection other) {
        for (var level : List.of(IsolationLevels.NONE, IsolationLevels.SNAPSHOT, IsolationLevels.SERIALIZABLE)) {
            connection.begin(level);
            for (int n = 0; n < 1000; n++) {
                connection.add(S, P, Values.literal(n), G);
            }
            check(connection.size(G) == 1000, "size within");
            check(other.size(G) == 0, "nobody else sees it");
            String update = "DELETE { GRAPH ?g { ?s ?p ?o } } INSERT { GRAPH ?g { ?s ?p 'x' } } "
                + "WHERE { GRAPH ?g { ?s ?p ?o FILTER(?o = 7) } }";
            connection.prepareUpdate(update).execute();
            check(connection.hasStatement(S, P, Values.literal("x"), false, G), "update within");
            var bound = connection.prepareUpdate("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }");
            bound.setBinding("o", Values.literal(8));
            bound.execute();
            check(connection.size(G) == 999, "update with a binding");
            check(connection.prepareBooleanQuery("ASK { GRAPH ?g { ?s ?p 'x' } }").evaluate(), "query within");
            connection.remove(S, null, null, G);
            connection.add(S, Q, Values.literal("end"), G);
            connection.prepare();
            connection.commit();
            check(other.size(G) == 1, "committed");
            connection.begin();
            connection.clear(G);
            check(connection.size(G) == 0, "cleared within");
            connection.rollback();
            check(connection.size(G) == 1, "rolled back");
            connection.clear(G);
        }
        connection.add(S, P, Values.literal("default"));
        connection.remove(S, P, null, (Resource) null);
        check(!connection.hasStatement(S, P, null, false), "removed from the default graph");
    }

    private static void clashes(RepositoryConnection one, RepositoryConnection two) {
        one.begin();
        two.begin();
        for (RepositoryConnection connection : List.of(one, two)) {
            check(!connection.hasStatement(S, P, null, false, G), "free");
            connection.add(S, P, Values.literal(connection == one ? "one" : "two"), G);
        }
        one.commit();
        try {
            two.commit();
            throw new AssertionError("two transactions got what only one can have");
        } catch (RepositoryException expected) {
            check(String.valueOf(expected.getMessage()).contains(P.stringValue()), "message " + expected.getMessage());
        }
        two.rollback();
        check(one.size(G) == 1, "one of them");
        one.clear(G);
    }

    private static void documents(RepositoryConnection connection) throws Exception {
        String turtle = "@prefix : <http://example.org/> . <s> :p 'a', 'b' ; :q [ :p 1 ] .";
        connection.add(new StringReader(turtle), "http://example.org/", RDFFormat.TURTLE, G);
        check(connection.size(G) == 4 && connection.hasStatement(S, P, Values.literal("b"), false, G), "turtle");
        String quads = "<http://example.org/s> <http://example.org/p> \"c\" <http://example.org/other> .\n";
        try {
            connection.add(new StringReader(quads), "", RDFFormat.NQUADS, G);
            throw new AssertionError("a document that names a graph went into another one");
        } catch (RDFParseException expected) {
            check(String.valueOf(expected.getMessage()).contains("names graphs"), "message " + expected.getMessage());
        }
        try {
            connection.add(new StringReader(turtle + "oops"), "http://example.org/", RDFFormat.TURTLE, G);
            throw new AssertionError("a mistake was not reported");
        } catch (RDFParseException expected) {
            check(String.valueOf(expected.getMessage()).contains("line 1"), "message " + expected.getMessage());
        }
        check(connection.size(G) == 4, "nothing of a wrong document");
    }

    private static void queries(RepositoryConnection connection) {
        var query = connection.prepareTupleQuery("SELECT ?o { GRAPH ?g { ?s ?p ?o FILTER(?o = ?wanted) } }");
        query.setBinding("wanted", Values.literal("a"));
        query.setBinding("g", G);
        try (var result = query.evaluate()) {
            check(((Literal) result.next().getValue("o")).getLabel().equals("a"), "bindings");
            check(!result.hasNext(), "one solution");
        }
        long triples = 0;
        try (var result = connection.prepareGraphQuery("CONSTRUCT { ?s ?p ?o } { GRAPH ?g { ?s ?p ?o } }").evaluate()) {
            for (Statement ignored : result) {
                triples++;
            }
        }
        check(triples >= 4, "construct");
        try {
            connection.prepareTupleQuery("SELECT * { ?s ?p }").evaluate();
            throw new AssertionError("a syntax error was not reported");
        } catch (QueryEvaluationException expected) {
            check(expected.getCause() instanceof MalformedQueryException, "kind " + expected.getCause());
            check(String.valueOf(expected.getMessage()).contains("line 1"), "message " + expected.getMessage());
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
