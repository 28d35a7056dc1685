import java.util.ArrayList;
import java.util.List;
import org.eclipse.rdf4j.model.IRI;
import org.eclipse.rdf4j.model.Literal;
import org.eclipse.rdf4j.model.Statement;
import org.eclipse.rdf4j.model.util.Values;
import org.eclipse.rdf4j.query.BindingSet;
import org.eclipse.rdf4j.query.MalformedQueryException;
import org.eclipse.rdf4j.query.QueryEvaluationException;
import org.eclipse.rdf4j.query.impl.SimpleDataset;
import org.eclipse.rdf4j.repository.RepositoryConnection;
import org.eclipse.rdf4j.repository.RepositoryException;
import org.eclipse.rdf4j.repository.sparql.SPARQLRepository;

/** A session of RDF4J's SPARQLRepository with a server; the argument is its address. */
public final class Rdf4jSession {
    private static final String LABELS = "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>\n"
        + "SELECT ?s ?label ?radius { ?s rdfs:label ?label ; <http://example.org/radius> ?radius\n"
        + "FILTER(lang(?label) = \"en\") } ORDER BY ?label";

    public static void main(String[] arguments) {
        SPARQLRepository repository = new SPARQLRepository(arguments[0]);
        repository.init();
        try (RepositoryConnection connection = repository.getConnection()) {
            List<String> labels = new ArrayList<>();
            try (var result = connection.prepareTupleQuery(LABELS).evaluate()) {
                for (BindingSet row : result) {
                    Literal label = (Literal) row.getValue("label");
                    check(label.getLanguage().orElse("").equals("en"), "language");
                    check(((Literal) row.getValue("radius")).decimalValue().signum() > 0, "decimal");
                    labels.add(label.getLabel());
                }
            }
            check(labels.equals(List.of("Ceres", "Pluto")), "labels " + labels);
            check(connection.prepareBooleanQuery("ASK { ?s ?p 5 }").evaluate(), "ask");
            check(count(connection.prepareGraphQuery("DESCRIBE <http://example.org/pluto>").evaluate()) == 7, "describe");
            String construct = "CONSTRUCT { ?s a <http://example.org/World> } { ?s a ?t }";
            check(count(connection.prepareGraphQuery(construct).evaluate()) == 2, "construct");
            IRI survey = Values.iri("http://example.org/survey");
            check(count(connection.getStatements(null, null, null, survey)) == 4, "statements of a graph");
            check(connection.hasStatement(null, null, Values.literal("Charon"), false), "has statement");
            List<String> contexts = new ArrayList<>();
            try (var result = connection.getContextIDs()) {
                result.forEach(context -> contexts.add(context.stringValue()));
            }
            check(contexts.equals(List.of(survey.stringValue())), "contexts " + contexts);
            check(connection.size() == 15, "size");
            var inGraph = connection.prepareTupleQuery("SELECT * { ?s ?p ?o }");
            SimpleDataset dataset = new SimpleDataset();
            dataset.addDefaultGraph(survey);
            inGraph.setDataset(dataset);
            check(inGraph.evaluate().stream().count() == 4, "dataset of the protocol");
            var bound = connection.prepareTupleQuery("SELECT * { ?s <http://example.org/moons> ?n }");
            bound.setBinding("s", Values.iri("http://example.org/pluto"));
            check(bound.evaluate().stream().count() == 1, "bindings");
            try (var result = connection.prepareTupleQuery("SELECT * { ?s ?p }").evaluate()) {
                throw new AssertionError("a syntax error was not reported");
            } catch (MalformedQueryException | QueryEvaluationException | RepositoryException expected) {
                check(String.valueOf(expected.getMessage()).contains("line 1"), "message " + expected.getMessage());
            }
        }
        repository.shutDown();
    }

    private static long count(Iterable<Statement> statements) {
        long count = 0;
        for (Statement ignored : statements) {
            count++;
        }
        return count;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
