package tailrace;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.util.ErrorNotifier;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Spark's shuffle of real-time mode, but a row that comes alone is sent at once.
 *
 * <p>Spark's own leaves it in a buffer until a thread passes by, each millisecond at best.
 */
public final class Shuffle extends StreamingShuffleManager {
    // Rows that follow each other come some microseconds apart; those that were waited for longer come one by one.
    private static final long ALONE_NANOS = 100000L;

    public ShuffleWriter getWriter(ShuffleHandle handle, long task, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        return new Writer(handle, task, context);
    }

    private static final class Writer extends StreamingShuffleWriter {
        Writer(ShuffleHandle handle, long task, TaskContext context) {
            super(handle, task, context, Option.empty(), new ErrorNotifier());
        }

        public void write(Iterator rows) {
            super.write(new Rows(rows, this));
        }
    }

    /** The rows of a task. Whoever asks whether there is another has buffered the one before. */
    private static final class Rows extends AbstractIterator {
        private final Iterator rows;
        private final StreamingShuffleWriter writer;
        private boolean alone;

        Rows(Iterator rows, StreamingShuffleWriter writer) {
            this.rows = rows;
            this.writer = writer;
        }

        public boolean hasNext() {
            if (alone) {
                StreamingShuffleWriter.ShardState[] shards = writer.shards();
                for (int shard = 0; shard < shards.length; shard++) {
                    shards[shard].send();
                }
            }
            long asked = System.nanoTime();
            boolean more = rows.hasNext();
            alone = System.nanoTime() - asked > ALONE_NANOS;
            return more;
        }

        public Object next() {
            return rows.next();
        }
    }
}
