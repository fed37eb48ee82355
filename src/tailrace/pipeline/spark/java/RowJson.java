package tailrace;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonGenerator;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/**
 * Writes rows as the bytes that Spark's to_json gives, nulls included.
 *
 * <p>Rows of numbers, truth values and strings are written here, straight into a buffer; others by the class that to_json uses.
 */
final class RowJson {
    private static final byte[] TRUE = ascii("true");
    private static final byte[] FALSE = ascii("false");
    private static final byte[] NULL = ascii("null");
    private static final int LONGEST_NUMBER = 20;

    private final byte[][] names;
    private final byte[] types;
    private final Others others;
    private byte[] buffer = new byte[1024];
    private int length;

    RowJson(StructType columns) {
        StructField[] fields = columns.fields();
        names = new byte[fields.length][];
        types = new byte[fields.length];
        boolean plain = true;
        for (int place = 0; place < fields.length; place++) {
            byte[] name = JsonStringEncoder.getInstance().quoteAsUTF8(fields[place].name());
            String before = place == 0 ? "{\"" : ",\"";
            names[place] = joined(joined(ascii(before), name), ascii("\":"));
            types[place] = PlainTypes.of(fields[place].dataType());
            plain = plain && types[place] != PlainTypes.OTHER;
        }
        others = plain && fields.length > 0 ? null : new Others(columns);
    }

    byte[] write(InternalRow row) {
        if (others != null) {
            return others.write(row);
        }
        length = 0;
        for (int place = 0; place < types.length; place++) {
            put(names[place]);
            if (row.isNullAt(place)) {
                put(NULL);
            } else {
                value(row, place);
            }
        }
        room(1);
        buffer[length++] = '}';
        return Arrays.copyOf(buffer, length);
    }

    private void value(InternalRow row, int place) {
        switch (types[place]) {
            case PlainTypes.LONG:
                number(row.getLong(place));
                break;
            case PlainTypes.INT:
                number(row.getInt(place));
                break;
            case PlainTypes.DOUBLE:
                number(row.getDouble(place));
                break;
            case PlainTypes.STRING:
                string(row.getUTF8String(place));
                break;
            default:
                put(row.getBoolean(place) ? TRUE : FALSE);
        }
    }

    private void number(long number) {
        room(LONGEST_NUMBER);
        length = digits(number, buffer, length);
    }

    private void number(double number) {
        byte[] text = ascii(Double.toString(number));
        boolean named = Double.isNaN(number) || Double.isInfinite(number);
        room(2);
        if (named) {
            buffer[length++] = '"';
        }
        put(text);
        if (named) {
            room(1);
            buffer[length++] = '"';
        }
    }

    private void string(UTF8String text) {
        int count = text.numBytes();
        room(count + 2);
        buffer[length++] = '"';
        text.writeToMemory(buffer, Platform.BYTE_ARRAY_OFFSET + length);
        int end = length + count;
        int at = length;
        // ASCII without quotes, backslashes and control characters is written as it is.
        while (at < end && buffer[at] >= ' ' && buffer[at] != '"' && buffer[at] != '\\') {
            at++;
        }
        if (at == end) {
            length = end;
        } else {
            put(JsonStringEncoder.getInstance().quoteAsUTF8(text.toString()));
            room(1);
        }
        buffer[length++] = '"';
    }

    private void put(byte[] bytes) {
        room(bytes.length);
        System.arraycopy(bytes, 0, buffer, length, bytes.length);
        length += bytes.length;
    }

    private void room(int count) {
        if (length + count > buffer.length) {
            buffer = Arrays.copyOf(buffer, Math.max(length + count, 2 * buffer.length));
        }
    }

    /** A number as decimal text. */
    static byte[] digits(long number) {
        byte[] found = new byte[LONGEST_NUMBER];
        return Arrays.copyOf(found, digits(number, found, 0));
    }

    /** Write a number as decimal text to a place that has room for the longest; where it ends. */
    private static int digits(long number, byte[] to, int at) {
        if (number == Long.MIN_VALUE) {
            byte[] lowest = ascii(Long.toString(number));
            System.arraycopy(lowest, 0, to, at, lowest.length);
            return at + lowest.length;
        }
        if (number < 0) {
            to[at++] = '-';
            number = -number;
        }
        int end = at + 1;
        for (long rest = number / 10; rest > 0; rest /= 10) {
            end++;
        }
        for (int place = end - 1; place >= at; place--) {
            to[place] = (byte) ('0' + number % 10);
            number /= 10;
        }
        return end;
    }

    static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static byte[] joined(byte[] first, byte[] second) {
        byte[] found = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, found, first.length, second.length);
        return found;
    }

    /** Rows of any types, by the class that to_json uses. */
    private static final class Others extends Writer {
        private final JacksonGenerator generator;
        private char[] text = new char[1024];
        private int length;

        Others(StructType columns) {
            Map settings = (Map) Map$.MODULE$.empty().updated("ignoreNullFields", "false");
            generator = new JacksonGenerator(columns, this, new JSONOptions(settings, "UTC", ""));
        }

        byte[] write(InternalRow row) {
            length = 0;
            generator.write(row);
            generator.flush();
            return new String(text, 0, length).getBytes(StandardCharsets.UTF_8);
        }

        public void write(char[] from, int at, int count) {
            if (length + count > text.length) {
                text = Arrays.copyOf(text, Math.max(length + count, 2 * text.length));
            }
            System.arraycopy(from, at, text, length, count);
            length += count;
        }

        public void flush() {}

        public void close() {}
    }
}
