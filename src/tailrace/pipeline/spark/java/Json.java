package tailrace;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonStreamContext;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.ContentReference;
import com.fasterxml.jackson.core.io.IOContext;
import com.fasterxml.jackson.core.json.UTF8StreamJsonParser;
import com.fasterxml.jackson.core.sym.ByteQuadsCanonicalizer;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.BadRecordException;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

/**
 * tailrace.json(bytes, null of a struct type): the fields of one JSON object, or null where the bytes are anything but exactly
 * one object in UTF-8 whose fields have the types of the struct, each number within the range of its type.
 *
 * <p>Spark's from_json stops after the first value, and reads bytes through an 8 KB buffer that it makes for each. Here the
 * same converters read straight from the record's bytes, and whatever follows the object is seen. Spark's whole-stage code calls
 * `invoke` with its own types, so that no row is copied.
 *
 * <p>The compiler is the one that Spark carries: no lambdas, no diamonds. One instance serves one task.
 */
public final class Json extends TypedFunction {
    private final boolean lenient;
    private transient FlatJson flat;
    private transient Reader reader;

    public Json(StructType schema, boolean lenient) {
        super(lenient ? "lenient_json" : "json", schema);
        this.lenient = lenient;
    }

    public InternalRow invoke(byte[] data, InternalRow ignored) {
        if (data == null) {
            return null;
        }
        if (reader == null) {
            reader = new Reader(schema, lenient);
            flat = FlatJson.of(schema);
        }
        // Strings that nobody has declared are passed over without a look at their bytes.
        if (!UTF8String.fromBytes(data).isValid()) {
            return null;
        }
        InternalRow row = flat != null ? flat.read(data) : null;
        return row != null ? row : reader.read(data);
    }

    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType, schema};
    }

    public DataType resultType() {
        return schema;
    }

    /** Spark's own converters from JSON to a row, on bytes; notes whether anything follows a value. */
    private static final class Reader extends AbstractFunction2 {
        private final StructType schema;
        private final JacksonParser converters;
        private final Factory factory;
        private final Text text = new Text();
        boolean followed;

        Reader(StructType schema, boolean lenient) {
            Map settings = Map$.MODULE$.empty();
            settings = (Map) settings.updated("allowSingleQuotes", "false");
            // Spark itself writes NaN and infinity, for which JSON has no number.
            settings = (Map) settings.updated("allowNonNumericNumbers", String.valueOf(lenient));
            // A topic says how long its records may be.
            settings = (Map) settings.updated("maxStringLen", String.valueOf(Integer.MAX_VALUE));
            JSONOptions options = new JSONOptions(settings, "UTC", "");
            this.schema = schema;
            converters = new JacksonParser(schema, options, false, (Seq) Nil$.MODULE$);
            factory = new Factory(options.buildJsonFactory(), this);
        }

        InternalRow read(byte[] data) {
            followed = false;
            try {
                Iterator rows = converters.parse(data, this, text).iterator();
                InternalRow row = rows.hasNext() ? (InternalRow) rows.next() : null;
                return followed ? null : row;
            } catch (Exception error) {
                if (!(error instanceof BadRecordException)) {
                    Platform.throwException(error);
                }
                return null;
            }
        }

        /** What the converters read from. */
        public Object apply(Object ignored, Object data) {
            return factory.over((byte[]) data);
        }
    }

    /** A bad record as text, for an error that nobody sees. */
    private static final class Text extends AbstractFunction1 {
        public Object apply(Object data) {
            return UTF8String.EMPTY_UTF8;
        }
    }

    /** Makes parsers with the settings of another factory; they take bytes for UTF-8 and nothing else. */
    private static final class Factory extends JsonFactory {
        private final Reader reader;

        Factory(JsonFactory like, Reader reader) {
            super(like, null);
            this.reader = reader;
        }

        JsonParser over(byte[] data) {
            // Where the source is known, a value that is taken as text keeps its white space: here it is compact.
            IOContext context = _createContext(ContentReference.unknown(), false);
            ByteQuadsCanonicalizer names = _byteSymbolCanonicalizer.makeChild(_factoryFeatures);
            return new Whole(reader, context, _parserFeatures, names, data);
        }
    }

    /**
     * A parser that tells its reader what is left when it is closed.
     *
     * <p>Spark's converters take whatever number it gives them: infinity for one that is too large, 200 as the byte -56, a time
     * that has wrapped around. So it gives none that is not the number in the text.
     */
    private static final class Whole extends UTF8StreamJsonParser {
        // A number of seconds that has more microseconds than a long holds.
        private static final long MOST_SECONDS = Long.MAX_VALUE / 1000000L;
        // So many digits a decimal has at most, before and after its point.
        private static final int DIGITS = DecimalType.MAX_PRECISION();
        // Of a decimal that is written as a string.
        private static final int LONGEST = 1000;

        private final Reader reader;

        Whole(Reader reader, IOContext context, int features, ByteQuadsCanonicalizer names, byte[] data) {
            super(context, features, null, null, names, data, 0, data.length, 0, false);
            this.reader = reader;
        }

        public double getDoubleValue() throws IOException {
            double found = super.getDoubleValue();
            if (Double.isInfinite(found) && !isNamed()) {
                _reportError("a number that no double holds");
            }
            return found;
        }

        public float getFloatValue() throws IOException {
            float found = super.getFloatValue();
            if (Float.isInfinite(found) && !isNamed()) {
                _reportError("a number that no float holds");
            }
            return found;
        }

        /** Jackson's own takes bytes without a sign, too. */
        public byte getByteValue() throws IOException {
            int found = getIntValue();
            if (found != (byte) found) {
                _reportError("a number that no byte holds");
            }
            return (byte) found;
        }

        /** Spark reads a number as a time in seconds, and multiplies. */
        public long getLongValue() throws IOException {
            long found = super.getLongValue();
            if ((found > MOST_SECONDS || found < -MOST_SECONDS) && DataTypes.TimestampType.equals(type(getParsingContext()))) {
                _reportError("a number of seconds that no timestamp holds");
            }
            return found;
        }

        /** Spark writes all digits out before it counts them, which takes minutes where the exponent is large. */
        public BigDecimal getDecimalValue() throws IOException {
            BigDecimal found = super.getDecimalValue();
            return type(getParsingContext()) instanceof DecimalType ? held(found) : found;
        }

        /** A decimal may be written as a string, too. */
        public String getText() throws IOException {
            String text = super.getText();
            if (_currToken != JsonToken.VALUE_STRING || !mayBeNumber(text) || !(type(getParsingContext()) instanceof DecimalType)) {
                return text;
            }
            if (text.length() > LONGEST) {
                _reportError("a number that no decimal holds");
            }
            try {
                // As Spark does, which passes commas over.
                return held(new BigDecimal(text.replace(",", ""))).toString();
            } catch (NumberFormatException error) {
                return text;
            }
        }

        /** A number whose digits can be written out. */
        private BigDecimal held(BigDecimal found) throws IOException {
            long highest = (long) found.precision() - found.scale();
            if (found.signum() == 0 || highest < -DIGITS) {
                return BigDecimal.ZERO;
            }
            if (highest > DIGITS) {
                _reportError("a number that no decimal holds");
            }
            return found;
        }

        private static boolean mayBeNumber(String text) {
            return !text.isEmpty() && "+-.,0123456789".indexOf(text.charAt(0)) >= 0;
        }

        /** What a number is written as where it is taken as text: there, too, it is the number in the text. */
        public JsonParser.NumberType getNumberType() throws IOException {
            if (_currToken != JsonToken.VALUE_NUMBER_FLOAT) {
                return super.getNumberType();
            }
            double near = super.getDoubleValue();
            boolean exact = Double.isNaN(near) || isNamed()
                    || !Double.isInfinite(near) && super.getDecimalValue().compareTo(BigDecimal.valueOf(near)) == 0;
            return exact ? JsonParser.NumberType.DOUBLE : JsonParser.NumberType.BIG_DECIMAL;
        }

        /** Whether a number that is infinite stands as a word, which is read only where it is asked for. */
        private boolean isNamed() throws IOException {
            String text = getText();
            return text.endsWith("INF") || text.endsWith("Infinity");
        }

        /** The declared type of the value that is being read there; null where none is declared. */
        private DataType type(JsonStreamContext at) {
            if (at.inRoot()) {
                return reader.schema;
            }
            DataType around = type(at.getParent());
            if (at.inArray()) {
                return around instanceof ArrayType ? ((ArrayType) around).elementType() : null;
            }
            if (around instanceof MapType) {
                return ((MapType) around).valueType();
            }
            StructField[] fields = around instanceof StructType ? ((StructType) around).fields() : new StructField[0];
            for (int place = 0; place < fields.length; place++) {
                if (fields[place].name().equals(at.getCurrentName())) {
                    return fields[place].dataType();
                }
            }
            return null;
        }

        public void close() throws IOException {
            for (int at = _inputPtr; at < _inputEnd && !reader.followed; at++) {
                byte it = _inputBuffer[at];
                reader.followed = it != ' ' && it != '\n' && it != '\r' && it != '\t';
            }
            super.close();
        }
    }
}
