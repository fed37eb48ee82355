package tailrace;

import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Where Spark looks our functions up by name. */
public final class Functions implements FunctionCatalog {
    private String name;

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
    }

    public String name() {
        return name;
    }

    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    public UnboundFunction loadFunction(Identifier function) {
        return new Unbound(function.name());
    }

    private static final class Unbound implements UnboundFunction {
        private final String name;

        Unbound(String name) {
            this.name = name;
        }

        public BoundFunction bind(StructType types) {
            if (name.equals("pack")) {
                return new Packed.Pack(struct(types, 0));
            }
            if (name.equals("unpack")) {
                return new Packed.Unpack(struct(types, 1));
            }
            // JSON may lack any field, also one that must not be null.
            return new Json((StructType) struct(types, 1).asNullable(), name.equals("lenient_json"));
        }

        private static StructType struct(StructType types, int place) {
            return (StructType) types.fields()[place].dataType();
        }

        public String name() {
            return name;
        }

        public String description() {
            return "see the class of this name";
        }
    }
}
