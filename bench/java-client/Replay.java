import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Asks the queries of a file one after the other, each over a connection of its own: Replay URL PID FILE WARM_UP.
 *
 * Prints the time of the process PID on processors, in ms a mix of 25 queries, without the first WARM_UP mixes.
 */
public class Replay {
    private static final int MIX = 25;

    public static void main(String[] arguments) throws Exception {
        String endpoint = arguments[0] + (arguments[0].contains("?") ? "&" : "?") + "query=";
        Path tasks = Path.of("/proc", arguments[1], "task");
        List<String> queries = Files.readAllLines(Path.of(arguments[2]));
        int warmUp = Integer.parseInt(arguments[3]) * MIX;
        long before = 0;
        for (int number = 0; number < queries.size(); number++) {
            if (number == warmUp) {
                before = processorTime(tasks);
            }
            ask(endpoint, queries.get(number));
        }
        double mixes = (double) (queries.size() - warmUp) / MIX;
        System.out.printf("%.2f%n", (processorTime(tasks) - before) / 1e6 / mixes);
    }

    private static void ask(String endpoint, String encoded) throws IOException {
        HttpURLConnection connection =
            (HttpURLConnection) URI.create(endpoint + encoded).toURL().openConnection();
        String query = URLDecoder.decode(encoded, StandardCharsets.UTF_8);
        boolean isGraph = query.contains("CONSTRUCT") || query.contains("DESCRIBE");
        connection.setRequestProperty(
            "Accept", isGraph ? "application/rdf+xml" : "application/sparql-results+xml");
        try (InputStream answer = connection.getInputStream()) {
            answer.readAllBytes();
        }
        connection.disconnect();
    }

    /** Nanoseconds of all its threads. */
    private static long processorTime(Path tasks) throws IOException {
        long sum = 0;
        for (File task : tasks.toFile().listFiles()) {
            try {
                String times = Files.readString(task.toPath().resolve("schedstat"));
                sum += Long.parseLong(times.split(" ")[0]);
            } catch (IOException ended) {
                // A thread that is over.
            }
        }
        return sum;
    }
}
