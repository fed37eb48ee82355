package tailrace;

import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Where Spark looks functions of ours up by name; each part with functions has a catalog of its own. */
public abstract class Functions implements FunctionCatalog {
    private String catalog;

    /** The function of a name for arguments of these types. */
    protected abstract BoundFunction function(String name, StructType types);

    public void initialize(String name, CaseInsensitiveStringMap options) {
        catalog = name;
    }

    public String name() {
        return catalog;
    }

    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    public UnboundFunction loadFunction(Identifier function) {
        return new Unbound(this, function.name());
    }

    protected static StructType struct(StructType types, int place) {
        return (StructType) types.fields()[place].dataType();
    }

    private static final class Unbound implements UnboundFunction {
        private final Functions functions;
        private final String name;

        Unbound(Functions functions, String name) {
            this.functions = functions;
            this.name = name;
        }

        public BoundFunction bind(StructType types) {
            return functions.function(name, types);
        }

        public String name() {
            return name;
        }

        public String description() {
            return "see the class of this name";
        }
    }
}
