package tailrace;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the JSON that most records are: an object of numbers, truth values, nulls and strings without escapes.
 *
 * <p>It never says that a record is malformed: whatever it does not know, it leaves to the parser that knows all of JSON. What it
 * does read, that parser would read as the same row. The bytes must be UTF-8.
 */
final class FlatJson {
    private static final byte UNDECLARED = PlainTypes.OTHER;

    // Below these the parser of all JSON has no limit that a record could break.
    private static final int LONGEST_RECORD = 1 << 20;
    private static final int LONGEST_NAME = 1000;
    private static final int LONGEST_NUMBER = 100;
    // So many digits are exact in a double, and in a long.
    private static final int EXACT = 15;
    private static final int FITTING = 18;

    private static final byte[] TRUE = {'t', 'r', 'u', 'e'};
    private static final byte[] FALSE = {'f', 'a', 'l', 's', 'e'};
    private static final byte[] NULL = {'n', 'u', 'l', 'l'};
    private static final double[] POWERS = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15
    };

    private final byte[][] names;
    private final byte[] types;
    private byte[] data;
    private int at;
    private Object found;

    private FlatJson(byte[][] names, byte[] types) {
        this.names = names;
        this.types = types;
    }

    /** A reader of objects with these fields; null where some have types that it does not know. */
    static FlatJson of(StructType schema) {
        StructField[] fields = schema.fields();
        byte[][] names = new byte[fields.length][];
        byte[] types = new byte[fields.length];
        for (int place = 0; place < fields.length; place++) {
            names[place] = fields[place].name().getBytes(StandardCharsets.UTF_8);
            types[place] = PlainTypes.of(fields[place].dataType());
            // A field with a default is never null where it is missing.
            if (types[place] == UNDECLARED || fields[place].metadata().contains("EXISTS_DEFAULT")) {
                return null;
            }
        }
        return new FlatJson(names, types);
    }

    /** The fields of the object; null where it is left to others. */
    InternalRow read(byte[] record) {
        if (record.length > LONGEST_RECORD) {
            return null;
        }
        data = record;
        at = 0;
        Object[] values = new Object[names.length];
        return object(values) && end() ? new GenericInternalRow(values) : null;
    }

    private boolean object(Object[] values) {
        if (next() != '{') {
            return false;
        }
        at++;
        int expected = 0;
        byte it = next();
        if (it == '}') {
            at++;
            return true;
        }
        while (it == '"') {
            int begin = at + 1;
            if (!text() || at - begin > LONGEST_NAME) {
                return false;
            }
            int field = field(begin, at - 1, expected);
            if (next() != ':') {
                return false;
            }
            at++;
            if (!value(field < 0 ? UNDECLARED : types[field])) {
                return false;
            }
            if (field >= 0) {
                values[field] = found;
                expected = field + 1;
            }
            it = next();
            at++;
            if (it == '}') {
                return true;
            }
            if (it != ',') {
                return false;
            }
            it = next();
        }
        return false;
    }

    /** The next byte that is no white space, without taking it; 0 at the end. */
    private byte next() {
        while (at < data.length) {
            byte it = data[at];
            if (it != ' ' && it != '\n' && it != '\r' && it != '\t') {
                return it;
            }
            at++;
        }
        return 0;
    }

    private boolean end() {
        return next() == 0 && at == data.length;
    }

    /** Take a string with its quotes. */
    private boolean text() {
        for (at++; at < data.length; at++) {
            byte it = data[at];
            if (it == '"') {
                at++;
                return true;
            }
            // Bytes of other letters than ASCII's are negative.
            if (it == '\\' || (it >= 0 && it < ' ')) {
                return false;
            }
        }
        return false;
    }

    /** Which field has this name, most likely the expected one; -1 where none has. */
    private int field(int begin, int end, int expected) {
        if (expected < names.length && named(expected, begin, end)) {
            return expected;
        }
        for (int place = 0; place < names.length; place++) {
            if (named(place, begin, end)) {
                return place;
            }
        }
        return -1;
    }

    private boolean named(int place, int begin, int end) {
        return Arrays.equals(names[place], 0, names[place].length, data, begin, end);
    }

    private boolean value(byte type) {
        byte it = next();
        found = null;
        if (it == '"') {
            int begin = at + 1;
            if (!text() || (type != PlainTypes.STRING && type != UNDECLARED)) {
                return false;
            }
            if (type == PlainTypes.STRING) {
                found = UTF8String.fromBytes(data, begin, at - 1 - begin);
            }
            return true;
        }
        if (it == '-' || (it >= '0' && it <= '9')) {
            return number(type);
        }
        if (it == 'n') {
            return word(NULL);
        }
        if ((it == 't' || it == 'f') && (type == PlainTypes.BOOLEAN || type == UNDECLARED)) {
            found = it == 't' ? Boolean.TRUE : Boolean.FALSE;
            return word(it == 't' ? TRUE : FALSE);
        }
        return false;
    }

    private boolean word(byte[] word) {
        int begin = at;
        at += word.length;
        return at <= data.length && Arrays.equals(word, 0, word.length, data, begin, at);
    }

    private boolean number(byte type) {
        int begin = at;
        boolean negative = data[at] == '-';
        if (negative) {
            at++;
        }
        int first = at;
        long digits = digits(0);
        int count = at - first;
        // JSON has no number that begins with a zero and goes on with a digit.
        if (count == 0 || (count > 1 && data[first] == '0')) {
            return false;
        }
        int decimals = 0;
        if (at < data.length && data[at] == '.') {
            int point = at++;
            digits = digits(digits);
            decimals = at - point - 1;
            count += decimals;
            if (decimals == 0) {
                return false;
            }
        }
        boolean exponent = at < data.length && (data[at] == 'e' || data[at] == 'E');
        // What a zero with a sign is, others say.
        if (exponent || count > LONGEST_NUMBER || (negative && digits == 0)) {
            return false;
        }
        if (type == UNDECLARED) {
            return true;
        }
        if (type == PlainTypes.DOUBLE) {
            found = Double.valueOf(
                    decimals == 0 && count <= FITTING ? (double) (negative ? -digits : digits)
                    : count <= EXACT ? (negative ? -digits : digits) / POWERS[decimals]
                    : Double.parseDouble(new String(data, begin, at - begin, StandardCharsets.ISO_8859_1)));
            return true;
        }
        if (decimals > 0 || count > FITTING) {
            return false;
        }
        long number = negative ? -digits : digits;
        if (type == PlainTypes.LONG) {
            found = Long.valueOf(number);
            return true;
        }
        if (type == PlainTypes.INT && number == (int) number) {
            found = Integer.valueOf((int) number);
            return true;
        }
        return false;
    }

    /** Take digits, and append them to a number; it means nothing where there are too many. */
    private long digits(long number) {
        for (; at < data.length; at++) {
            byte it = data[at];
            if (it < '0' || it > '9') {
                break;
            }
            number = number * 10 + (it - '0');
        }
        return number;
    }
}
