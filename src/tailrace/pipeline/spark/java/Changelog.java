package tailrace;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.kafka010.producer.CachedKafkaProducer;
import org.apache.spark.sql.kafka010.producer.InternalKafkaProducerPool$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Where micro-batches write the rows of a view or feed: its changelog. Real-time mode writes the same records by Spark's own sink.
 *
 * <p>A frame that is written has the columns `key`, text; `row`, a struct, null where the key is gone; `v`, the version; and others
 * with names of one letter. Those and `v` are numbers, each a header of its name. Options: `topic`; `generation`, the header `g`;
 * `origin`, the header `s` where it is not empty; `longest`, the bytes that a key and its row may have: of longer ones only that the
 * key holds none is written, and their length as the header `o`; `kafka.…` for the producer; and `conflate`: of the rows of a key that
 * a task gets, only the one of the highest version counts.
 *
 * <p>A task writes its rows in their order. Its commit waits until the brokers have all of them; where they refuse one, the task
 * fails, and the batch is written again.
 *
 * <p>The compiler is the one that Spark carries: no lambdas, no generic types.
 */
public final class Changelog implements TableProvider {
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map options) {
        return new Topic(options);
    }

    private static final class Topic implements SupportsWrite, SupportsStreamingUpdateAsAppend, Write {
        private final HashMap options;
        private StructType schema;

        Topic(Map options) {
            this.options = new HashMap(options);
        }

        public String name() {
            return "changelog " + options.get("topic");
        }

        public StructType schema() {
            return new StructType();
        }

        public Set capabilities() {
            return EnumSet.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            schema = info.schema();
            return this;
        }

        public Write build() {
            return this;
        }

        public StreamingWrite toStreaming() {
            return new Batches(options, schema);
        }
    }

    /** What goes to the tasks of a batch. */
    private static final class Batches implements StreamingWrite, StreamingDataWriterFactory {
        private final HashMap options;
        private final StructType schema;

        Batches(HashMap options, StructType schema) {
            this.options = options;
            this.schema = schema;
        }

        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            return this;
        }

        public boolean useCommitCoordinator() {
            return false;
        }

        public void commit(long batch, WriterCommitMessage[] messages) {}

        public void abort(long batch, WriterCommitMessage[] messages) {}

        public DataWriter createWriter(int partition, long task, long batch) {
            return new Changes(options, schema);
        }
    }

    private static final class Written implements WriterCommitMessage {}

    /** The writer of a task. */
    private static final class Changes implements DataWriter, Callback {
        private static final String SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer";
        private static final String OF_KAFKA = "kafka.";

        private final String topic;
        private final CachedKafkaProducer cached;
        private final KafkaProducer producer;
        private final int key;
        private final int row;
        private final int width;
        private final RowJson json;
        private final Header generation;
        private final Header origin;
        private final String[] names;
        private final int[] numbers;
        private final int version;
        private final int longest;
        private final Newest newest;
        private volatile Exception refused;

        Changes(Map options, StructType schema) {
            topic = (String) options.get("topic");
            key = schema.fieldIndex("key");
            row = schema.fieldIndex("row");
            StructType columns = (StructType) schema.fields()[row].dataType();
            width = columns.length();
            json = new RowJson(columns);
            generation = new RecordHeader("g", RowJson.ascii((String) options.get("generation")));
            String named = (String) options.get("origin");
            origin = named.isEmpty() ? null : new RecordHeader("s", RowJson.ascii(named));
            // Key and row are the first two.
            numbers = new int[schema.length() - 2];
            names = new String[numbers.length];
            for (int place = 0; place < numbers.length; place++) {
                numbers[place] = place + 2;
                names[place] = schema.fieldNames()[place + 2];
            }
            version = schema.fieldIndex("v");
            longest = Integer.parseInt((String) options.get("longest"));
            newest = "true".equals(options.get("conflate")) ? new Newest() : null;
            cached = InternalKafkaProducerPool$.MODULE$.acquire(settings(options));
            producer = cached.producer();
        }

        private static Map settings(Map options) {
            HashMap found = new HashMap();
            Iterator given = options.entrySet().iterator();
            while (given.hasNext()) {
                Map.Entry option = (Map.Entry) given.next();
                String name = (String) option.getKey();
                if (name.startsWith(OF_KAFKA)) {
                    found.put(name.substring(OF_KAFKA.length()), option.getValue());
                }
            }
            found.put("key.serializer", SERIALIZER);
            found.put("value.serializer", SERIALIZER);
            return found;
        }

        public void write(Object record) {
            check();
            InternalRow change = (InternalRow) record;
            if (newest == null || newest.passing()) {
                send(change);
            } else if (hold((UnsafeRow) change)) {
                sendNewest();
            }
        }

        /** Hold a row back, unless a newer one is held; true where there is no room for more. */
        private boolean hold(UnsafeRow change) {
            UTF8String name = change.getUTF8String(key);
            Newest.Held held = newest.held(name);
            if (held == null) {
                return newest.hold(name.clone(), change.copy());
            }
            return change.getLong(version) >= held.row.getLong(version) && newest.replace(held, change.copy());
        }

        private void sendNewest() {
            Iterator rows = newest.all();
            while (rows.hasNext()) {
                send(((Newest.Held) rows.next()).row);
            }
            newest.clear();
        }

        private void send(InternalRow change) {
            Header[] headers = new Header[numbers.length + (origin == null ? 1 : 2)];
            headers[0] = generation;
            for (int place = 0; place < numbers.length; place++) {
                byte[] text = RowJson.digits(change.getLong(numbers[place]));
                headers[place + 1] = new RecordHeader(names[place], text);
            }
            if (origin != null) {
                headers[headers.length - 1] = origin;
            }
            byte[] value = change.isNullAt(row) ? null : json.write(change.getStruct(row, width));
            byte[] name = change.getUTF8String(key).getBytes();
            long size = (long) name.length + (value == null ? 0 : value.length);
            if (size > longest) {
                value = null;
                headers = (Header[]) Arrays.copyOf(headers, headers.length + 1);
                headers[headers.length - 1] = new RecordHeader("o", RowJson.digits(size));
            }
            producer.send(new ProducerRecord(topic, null, null, name, value, new RecordHeaders(headers)), this);
        }

        public void onCompletion(RecordMetadata metadata, Exception error) {
            if (error != null && refused == null) {
                refused = error;
            }
        }

        private void check() {
            if (refused != null) {
                Platform.throwException(refused);
            }
        }

        public WriterCommitMessage commit() {
            if (newest != null) {
                sendNewest();
            }
            check();
            producer.flush();
            check();
            return new Written();
        }

        public void abort() {}

        public void close() {
            if (newest != null) {
                newest.clear();
            }
            InternalKafkaProducerPool$.MODULE$.release(cached);
        }
    }
}
