package tailrace;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Of the rows of a key that a task of a micro-batch has, the newest, before Spark sorts them for an aggregate.
 *
 * <p>A row is the bytes of a `Packed` struct: the key, a struct; what the newest row brings, a struct; how many rows it stands for, a
 * long; then numbers that tell which row is the newest, the first that differs counts; then numbers of which the highest stays,
 * whichever row it comes from. A row that is as new as another comes after it.
 *
 * <p>The compiler is the one that Spark carries: no lambdas, no generic types.
 */
public final class Conflation implements MapPartitionsFunction {
    private static final int KEY = 0;
    private static final int COUNT = 2;
    private static final int ORDER = 3;

    private final int keys;
    private final int highest;
    private final int width;

    /** Rows with so many columns in the key, numbers for the order, and numbers of which the highest stays. */
    public Conflation(int keys, int order, int highest) {
        this.keys = keys;
        this.highest = ORDER + order;
        this.width = this.highest + highest;
    }

    public Iterator call(Iterator rows) {
        Conflated found = new Conflated(rows);
        TaskContext.get().addTaskCompletionListener(found);
        return found;
    }

    private boolean newer(UnsafeRow row, UnsafeRow held) {
        for (int place = ORDER; place < highest; place++) {
            long one = row.getLong(place);
            long other = held.getLong(place);
            if (one != other) {
                return one > other;
            }
        }
        return true;
    }

    /** Let a row stand for another one, too. */
    private void absorb(UnsafeRow row, UnsafeRow other) {
        row.setLong(COUNT, row.getLong(COUNT) + other.getLong(COUNT));
        for (int place = highest; place < width; place++) {
            // Values of less than eight bytes are filled up with zeros.
            if (other.getLong(place) > row.getLong(place)) {
                row.setLong(place, other.getLong(place));
            }
        }
    }

    /** The rows of a task; reads until memory is full or none is left, then gives what it holds. */
    private final class Conflated implements Iterator, TaskCompletionListener {
        private final Iterator rows;
        private final Newest newest = new Newest();
        private Iterator ready = newest.all();

        Conflated(Iterator rows) {
            this.rows = rows;
        }

        public boolean hasNext() {
            if (ready.hasNext()) {
                return true;
            }
            newest.clear();
            if (!newest.passing()) {
                gather();
            }
            return ready.hasNext() || rows.hasNext();
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            // The bytes that the row was made of.
            return ready.hasNext() ? ((Newest.Held) ready.next()).row.getBytes() : rows.next();
        }

        private void gather() {
            boolean full = false;
            while (!full && rows.hasNext()) {
                byte[] data = (byte[]) rows.next();
                UnsafeRow row = new UnsafeRow(width);
                row.pointTo(data, data.length);
                UnsafeRow key = row.getStruct(KEY, keys);
                Newest.Held held = newest.held(key);
                if (held == null) {
                    full = newest.hold(key.copy(), row);
                } else if (newer(row, held.row)) {
                    absorb(row, held.row);
                    full = newest.replace(held, row);
                } else {
                    absorb(held.row, row);
                }
            }
            ready = newest.all();
        }

        public void onTaskCompletion(TaskContext context) {
            newest.clear();
        }
    }
}
