package tailrace;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * tailrace_rows.pack(struct): the bytes in which Spark itself keeps the struct, so that code of our own can look into it.
 * tailrace_rows.unpack(bytes, null of a struct type): the struct again, without a copy.
 *
 * <p>Bytes are packed and unpacked within one query. One instance serves one task.
 */
public final class Packed {
    private Packed() {}

    public static final class Pack extends TypedFunction {
        private transient UnsafeProjection projection;

        public Pack(StructType schema) {
            super("pack", schema);
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
    }

    public static final class Unpack extends TypedFunction {
        public Unpack(StructType schema) {
            super("unpack", schema);
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
    }
}
