package tailrace;

import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.types.StructType;

/** The catalog `tailrace`: json and lenient_json. */
public final class JsonFunctions extends Functions {
    protected BoundFunction function(String name, StructType types) {
        // JSON may lack any field, also one that must not be null.
        return new Json((StructType) struct(types, 1).asNullable(), name.equals("lenient_json"));
    }
}
