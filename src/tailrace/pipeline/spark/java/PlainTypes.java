package tailrace;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * The types of fields that are read and written without Spark's own classes for JSON, each by a number.
 *
 * <p>All is public, because the compiler takes constants of other files only if it may read them itself.
 */
public final class PlainTypes {
    public static final byte OTHER = 0;
    public static final byte LONG = 1;
    public static final byte INT = 2;
    public static final byte DOUBLE = 3;
    public static final byte STRING = 4;
    public static final byte BOOLEAN = 5;

    private PlainTypes() {}

    static byte of(DataType type) {
        return type.equals(DataTypes.LongType) ? LONG
                : type.equals(DataTypes.IntegerType) ? INT
                : type.equals(DataTypes.DoubleType) ? DOUBLE
                : type.equals(DataTypes.StringType) ? STRING
                : type.equals(DataTypes.BooleanType) ? BOOLEAN
                : OTHER;
    }
}
