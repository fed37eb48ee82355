package tailrace;

import java.io.Serializable;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.StructType;

/** A function for one struct type: two of one name and type are the same, so that Spark calls it once for equal arguments. */
public abstract class TypedFunction implements ScalarFunction, Serializable {
    protected final StructType schema;
    private final String name;

    protected TypedFunction(String name, StructType schema) {
        this.name = name;
        this.schema = schema;
    }

    public String name() {
        return name;
    }

    public String canonicalName() {
        return "tailrace." + name + " " + schema.json();
    }

    public String toString() {
        return "tailrace." + name;
    }

    public boolean equals(Object other) {
        return other instanceof TypedFunction
                && name.equals(((TypedFunction) other).name)
                && schema.equals(((TypedFunction) other).schema);
    }

    public int hashCode() {
        return schema.hashCode();
    }
}
