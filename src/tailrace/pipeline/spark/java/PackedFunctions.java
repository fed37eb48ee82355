package tailrace;

import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.types.StructType;

/** The catalog `tailrace_rows`: pack and unpack. */
public final class PackedFunctions extends Functions {
    protected BoundFunction function(String name, StructType types) {
        if (name.equals("pack")) {
            return new Packed.Pack(struct(types, 0));
        }
        return new Packed.Unpack(struct(types, 1));
    }
}
