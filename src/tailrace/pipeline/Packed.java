package tailrace;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * tailrace.pack(struct): the bytes in which Spark itself keeps the struct, so that code of our own can look into it.
 * tailrace.unpack(bytes, null of a struct type): the struct again, without a copy.
 *
 * <p>Bytes are packed and unpacked within one query. One instance serves one task.
 */
public final class Packed {
    private Packed() {}

    public static final class Pack implements ScalarFunction, Serializable {
        private final StructType schema;
        private transient UnsafeProjection projection;

        public Pack(StructType schema) {
            this.schema = schema;
        }

        public byte[] invoke(InternalRow row) {
            if (projection == null) {
                projection = UnsafeProjection.create(schema);
            }
            return projection.apply(row).getBytes();
        }

        public DataType[] inputTypes() {
            return new DataType[] {schema};
        }

        public DataType resultType() {
            return DataTypes.BinaryType;
        }

        public String name() {
            return "pack";
        }

        public String canonicalName() {
            return "tailrace.pack " + schema.json();
        }

        public String toString() {
            return "tailrace.pack";
        }

        public boolean equals(Object other) {
            return other instanceof Pack && schema.equals(((Pack) other).schema);
        }

        public int hashCode() {
            return schema.hashCode();
        }
    }

    public static final class Unpack implements ScalarFunction, Serializable {
        private final StructType schema;

        public Unpack(StructType schema) {
            this.schema = schema;
        }

        public InternalRow invoke(byte[] data, InternalRow ignored) {
            UnsafeRow row = new UnsafeRow(schema.length());
            row.pointTo(data, data.length);
            return row;
        }

        public DataType[] inputTypes() {
            return new DataType[] {DataTypes.BinaryType, schema};
        }

        public DataType resultType() {
            return schema;
        }

        public boolean isResultNullable() {
            return false;
        }

        public String name() {
            return "unpack";
        }

        public String canonicalName() {
            return "tailrace.unpack " + schema.json();
        }

        public String toString() {
            return "tailrace.unpack";
        }

        public boolean equals(Object other) {
            return other instanceof Unpack && schema.equals(((Unpack) other).schema);
        }

        public int hashCode() {
            return schema.hashCode();
        }
    }
}
