import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The views of the benchmark in Kafka Streams.
 *
 * <p>java Streams KIND KAFKA PREFIX OUTPUT STATE-DIRECTORY every-update|cached LINGER-MS
 *
 * <p>every-update: no record cache, so that every event gives a row. cached: the record cache conflates the rows
 * of a key until the next commit. LINGER-MS: how long a record waits for others to be sent with.
 *
 * <p>Prints `started MILLISECONDS` when it begins to process.
 */
public final class Streams {
    private static final Serde<String> TEXT = Serdes.String();
    private static final ObjectMapper JSON = new ObjectMapper();

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Rating(long movie_id, double rating, String at) {}

    record Average(long movie_id, double rating, long ratings) {}

    /** An event that says when it was sent, in ns, and a row that passes the last such time on. */
    record StampedRating(long movie_id, double rating, long at) {}

    record StampedAverage(long movie_id, double rating, long n, long t) {}

    record StampedSum(double sum, long count, long at) {}

    record MinuteAverage(long movie_id, String window_start, double rating, long ratings) {}

    record Position(double lat, double lon) {}

    record VehiclePosition(String vehicle, double lat, double lon) {}

    record Movie(String title) {}

    record Score(double score) {}

    record ScoredMovie(String movie_id, String title, double score) {}

    record Event(String client_id, String kind, long number) {}

    /** What an average is kept as: sixteen bytes in the store. */
    record Sum(double sum, long count) {
        static final Serde<Sum> SERDE = Serdes.serdeFrom(
                (topic, it) -> it == null ? null : ByteBuffer.allocate(16).putDouble(it.sum).putLong(it.count).array(),
                (topic, data) -> data == null ? null : Sum.of(ByteBuffer.wrap(data)));

        static Sum of(ByteBuffer data) {
            return new Sum(data.getDouble(), data.getLong());
        }

        Sum plus(double value) {
            return new Sum(sum + value, count + 1);
        }
    }

    private final StreamsBuilder builder = new StreamsBuilder();
    private final String prefix;
    private final String output;
    private final boolean cached;

    private Streams(String prefix, String output, boolean cached) {
        this.prefix = prefix;
        this.output = output;
        this.cached = cached;
    }

    private void declare(String kind) {
        switch (kind) {
            case "aggregate" -> aggregate();
            case "stamped" -> stamped();
            case "latest" -> latest();
            case "window" -> window();
            case "join" -> join();
            case "feed" -> feed();
            default -> throw new IllegalArgumentException("no kind " + kind);
        }
    }

    private void aggregate() {
        Materialized<Long, Sum, KeyValueStore<Bytes, byte[]>> store = Materialized.as("averages");
        ratings(false)
                .aggregate(() -> new Sum(0, 0), (id, rating, sum) -> sum.plus(rating), keyed(store))
                .toStream()
                .map((id, s) -> KeyValue.pair(id.toString(), new Average(id, s.sum / s.count, s.count)))
                .to(output, Produced.with(TEXT, json(Average.class)));
    }

    /** As the aggregate; records name their channel in a header, for servers that read the output. */
    private void stamped() {
        Materialized<Long, StampedSum, KeyValueStore<Bytes, byte[]>> store = Materialized.as("averages");
        builder.stream(prefix + "ratings", Consumed.with(TEXT, json(StampedRating.class)))
                .map((key, it) -> KeyValue.pair(it.movie_id, it))
                .groupByKey(Grouped.with("by-movie", Serdes.Long(), json(StampedRating.class)))
                .aggregate(
                        () -> new StampedSum(0, 0, 0),
                        (id, it, s) -> new StampedSum(s.sum + it.rating, s.count + 1, Math.max(s.at, it.at)),
                        store.withKeySerde(Serdes.Long()).withValueSerde(json(StampedSum.class)))
                .toStream()
                .map((id, s) -> KeyValue.pair(id.toString(), new StampedAverage(id, s.sum / s.count, s.count, s.at)))
                .processValues(InChannel::new)
                .to(output, Produced.with(TEXT, json(StampedAverage.class)));
    }

    private static final class InChannel extends ContextualFixedKeyProcessor<String, StampedAverage, StampedAverage> {
        @Override
        public void process(FixedKeyRecord<String, StampedAverage> record) {
            byte[] channel = record.key().getBytes(StandardCharsets.UTF_8);
            context().forward(record.withHeaders(new RecordHeaders().add("channels", channel)));
        }
    }

    private void window() {
        Materialized<Long, Sum, WindowStore<Bytes, byte[]>> store = Materialized.as("per-minute");
        ratings(true)
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(10)))
                .aggregate(
                        () -> new Sum(0, 0),
                        (id, rating, sum) -> sum.plus(rating),
                        keyed(store).withRetention(Duration.ofHours(1)))
                .toStream()
                .map((id, s) -> {
                    String start = Instant.ofEpochMilli(id.window().start()).toString();
                    String key = "[\"" + id.key() + "\",\"" + start + "\"]";
                    return KeyValue.pair(key, new MinuteAverage(id.key(), start, s.sum / s.count, s.count));
                })
                .to(output, Produced.with(TEXT, json(MinuteAverage.class)));
    }

    /** The ratings by movie; the topic has no key, so they go through a repartition topic. */
    private KGroupedStream<Long, Double> ratings(boolean eventTime) {
        Consumed<String, Rating> from = Consumed.with(TEXT, json(Rating.class));
        if (eventTime) {
            from = from.withTimestampExtractor(
                    (record, latest) -> Instant.parse(((Rating) record.value()).at).toEpochMilli());
        }
        return builder.stream(prefix + "ratings", from)
                .map((key, it) -> KeyValue.pair(it.movie_id, it.rating))
                .groupByKey(Grouped.with("by-movie", Serdes.Long(), Serdes.Double()));
    }

    /** Where every update counts nothing has to be kept; with the cache, a table conflates. */
    private void latest() {
        Consumed<String, Position> from = Consumed.with(TEXT, json(Position.class));
        var positions = cached
                ? builder.table(prefix + "positions", from, Materialized.as("positions")).toStream()
                : builder.stream(prefix + "positions", from);
        positions
                .mapValues((vehicle, it) -> new VehiclePosition(vehicle, it.lat, it.lon))
                .to(output, Produced.with(TEXT, json(VehiclePosition.class)));
    }

    private void join() {
        KTable<String, Movie> movies =
                builder.table(prefix + "movies", Consumed.with(TEXT, json(Movie.class)), Materialized.as("movies"));
        KTable<String, Score> scores =
                builder.table(prefix + "scores", Consumed.with(TEXT, json(Score.class)), Materialized.as("scores"));
        movies.join(scores, (movie, score) -> new ScoredMovie("", movie.title, score.score))
                .toStream()
                .mapValues((id, row) -> row == null ? null : new ScoredMovie(id, row.title, row.score))
                .to(output, Produced.with(TEXT, json(ScoredMovie.class)));
    }

    private void feed() {
        builder.stream(prefix + "events", Consumed.with(TEXT, json(Event.class)))
                .filter((key, it) -> "notice".equals(it.kind))
                .selectKey((key, it) -> it.client_id)
                .to(output, Produced.with(TEXT, json(Event.class)));
    }

    private <S extends org.apache.kafka.streams.processor.StateStore> Materialized<Long, Sum, S> keyed(
            Materialized<Long, Sum, S> store) {
        return store.withKeySerde(Serdes.Long()).withValueSerde(Sum.SERDE);
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = JSON.readerFor(type);
        ObjectWriter writer = JSON.writerFor(type);
        Serializer<T> out = (topic, it) -> {
            try {
                return it == null ? null : writer.writeValueAsBytes(it);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        Deserializer<T> in = (topic, data) -> {
            try {
                return data == null ? null : reader.readValue(data);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        return Serdes.serdeFrom(out, in);
    }

    private static Properties settings(String kafka, String id, String state, boolean cached, int linger) {
        Properties found = new Properties();
        found.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        found.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, kafka);
        found.put(StreamsConfig.STATE_DIR_CONFIG, state);
        found.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        found.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
        found.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        found.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cached ? 64L * 1024 * 1024 : 0L);
        // Cached rows leave at a commit; without a cache a commit only saves offsets.
        found.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, cached ? 1_000L : 10_000L);
        found.put(StreamsConfig.producerPrefix("linger.ms"), linger);
        found.put(StreamsConfig.producerPrefix("batch.size"), 64 * 1024);
        found.put(StreamsConfig.consumerPrefix("max.poll.records"), 5_000);
        found.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        found.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 5_000);
        return found;
    }

    public static void main(String[] arguments) throws InterruptedException {
        String kind = arguments[0];
        boolean cached = "cached".equals(arguments[5]);
        Streams topology = new Streams(arguments[2], arguments[3], cached);
        topology.declare(kind);
        // The identifier holds the output's name, so that each run starts from nothing.
        Properties settings =
                settings(arguments[1], "streams-" + arguments[3], arguments[4], cached, Integer.parseInt(arguments[6]));
        KafkaStreams streams = new KafkaStreams(topology.builder.build(settings), settings);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("started " + System.currentTimeMillis());
            } else if (now == KafkaStreams.State.ERROR) {
                failed.countDown();
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
        failed.await();
        System.exit(1);
    }
}
