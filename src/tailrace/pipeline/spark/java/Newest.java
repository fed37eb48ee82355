package tailrace;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The newest row of each key, held back by a task of a micro-batch; all tasks together hold as much as an eighth of the memory.
 *
 * <p>Which of two rows is the newer one, and what becomes of the other, is the task's own. What it holds is to be cleared at its end.
 */
final class Newest {
    private static final AtomicLong ALL = new AtomicLong();
    private static final long MOST = Runtime.getRuntime().maxMemory() / 8;
    // An entry, its key and the objects that they are made of.
    private static final long OVERHEAD = 250;

    private final LinkedHashMap rows = new LinkedHashMap();
    private long size;
    private long taken;
    private boolean passing;

    /** What is held of a key. */
    static final class Held {
        UnsafeRow row;
        private long size;
    }

    /** Whether so few keys come again that holding rows back is not worth it. */
    boolean passing() {
        return passing;
    }

    /** What is held of the key of a row that has come; null where there is nothing. */
    Held held(Object key) {
        taken++;
        return (Held) rows.get(key);
    }

    /** Hold the first row of a key; neither the key nor the size of the row may change. True where there is no room for more. */
    boolean hold(Object key, UnsafeRow row) {
        Held held = new Held();
        rows.put(key, held);
        return replace(held, row);
    }

    /** Hold another row of a key. True where there is no room for more. */
    boolean replace(Held held, UnsafeRow row) {
        long added = OVERHEAD + row.getSizeInBytes() - held.size;
        held.row = row;
        held.size += added;
        size += added;
        return added != 0 && ALL.addAndGet(added) > MOST;
    }

    /** Each that is held, in the order in which the keys came. */
    Iterator all() {
        return rows.values().iterator();
    }

    void clear() {
        passing = taken > 0 && taken < 2L * rows.size();
        taken = 0;
        rows.clear();
        ALL.addAndGet(-size);
        size = 0;
    }
}
