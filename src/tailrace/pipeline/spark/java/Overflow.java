package tailrace;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.Abs;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BRound;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Ceil;
import org.apache.spark.sql.catalyst.expressions.Divide;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Floor;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MillisToTimestamp;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.NumericEvalContext;
import org.apache.spark.sql.catalyst.expressions.Round;
import org.apache.spark.sql.catalyst.expressions.SecondsToTimestamp;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.NumericType;
import scala.Enumeration;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Makes an overflow of whole numbers null in all SQL of a session, as one of decimals is.
 *
 * <p>Without Spark's ANSI mode they wrap around, to a wrong number; with it the query ends. Spark has a third mode for its
 * functions such as try_add and try_sum: null. This is a rule of the analysis that takes the third for the first. It applies to
 * whatever is analysed, whether it was declared as SQL or as columns.
 */
public final class Overflow extends AbstractFunction1 {
    public Object apply(Object extensions) {
        ((SparkSessionExtensions) extensions).injectPostHocResolutionRule(new OfSession());
        return BoxedUnit.UNIT;
    }

    private static final class OfSession extends AbstractFunction1 {
        public Object apply(Object session) {
            return new NullForOverflow();
        }
    }

    /** The rule; public, because Spark asks for its name. */
    public static final class NullForOverflow extends Rule {
        public TreeNode apply(TreeNode plan) {
            return ((LogicalPlan) plan).resolveExpressionsUp(new Checked());
        }
    }

    private static final class Checked extends AbstractPartialFunction {
        private static final Enumeration.Value WRAPS = EvalMode.LEGACY();
        private static final Enumeration.Value NULL = EvalMode.TRY();
        private static final double TOO_LARGE = 0x1p63;

        public boolean isDefinedAt(Object expression) {
            return checked((Expression) expression) != null;
        }

        public Object applyOrElse(Object expression, Function1 otherwise) {
            Expression found = checked((Expression) expression);
            return found != null ? found : otherwise.apply(expression);
        }

        /** The expression to take in place of one; null where it stays. */
        private static Expression checked(Expression it) {
            // A mistake in the SQL is told by Spark's own check, which comes after this.
            if (!it.resolved()) {
                return null;
            }
            // A number of seconds or milliseconds that no timestamp holds would end the query.
            if (it instanceof SecondsToTimestamp || it instanceof MillisToTimestamp) {
                return new TryEval(it);
            }
            if (it instanceof TryEval && ((TryEval) it).child() instanceof TryEval) {
                return ((TryEval) it).child();
            }
            // What no long holds would be the highest of them, or the lowest.
            if (it instanceof Floor && isWhole(it.dataType()) && !((Floor) it).failOnError()) {
                return new TryEval(new Floor(((Floor) it).child(), true));
            }
            if (it instanceof Ceil && isWhole(it.dataType()) && !((Ceil) it).failOnError()) {
                return new TryEval(new Ceil(((Ceil) it).child(), true));
            }
            if (it instanceof Round && isWhole(it.dataType()) && !((Round) it).ansiEnabled()) {
                return new TryEval(new Round(((Round) it).child(), ((Round) it).scale(), true));
            }
            if (it instanceof BRound && isWhole(it.dataType()) && !((BRound) it).ansiEnabled()) {
                return new TryEval(new BRound(((BRound) it).child(), ((BRound) it).scale(), true));
            }
            if (it instanceof Cast) {
                Cast cast = (Cast) it;
                DataType from = cast.child().dataType();
                boolean numbers = isWhole(cast.dataType()) && from instanceof NumericType;
                return numbers && wraps(cast.evalMode()) && !Cast.canUpCast(from, cast.dataType())
                        ? cast.copy(cast.child(), cast.dataType(), cast.timeZoneId(), NULL)
                        : null;
            }
            if (it instanceof Sum) {
                Sum sum = (Sum) it;
                // A count of records does not overflow, and its state is to stay as it is.
                boolean counts = sum.child() instanceof Attribute && ((Attribute) sum.child()).name().equals("__count");
                return !counts && isWhole(sum.dataType()) && wraps(sum.evalContext().evalMode())
                        ? sum.copy(sum.child(), checked(sum.evalContext()))
                        : null;
            }
            if (it instanceof BinaryArithmetic) {
                return arithmetic((BinaryArithmetic) it);
            }
            if (it instanceof UnaryMinus && isWhole(it.dataType())) {
                return minus(((UnaryMinus) it).child());
            }
            if (it instanceof Abs && isWhole(it.dataType()) && it.deterministic()) {
                Expression of = ((Abs) it).child();
                return new If(new LessThan(of, zero(of.dataType())), minus(of), of);
            }
            return null;
        }

        private static Expression arithmetic(BinaryArithmetic it) {
            if (!isWhole(it.dataType()) || !wraps(it.evalMode())) {
                return null;
            }
            Expression left = (Expression) it.left();
            Expression right = (Expression) it.right();
            NumericEvalContext context = checked(it.evalContext());
            return it instanceof Add ? new Add(left, right, context)
                    : it instanceof Subtract ? new Subtract(left, right, context)
                    : it instanceof Multiply ? new Multiply(left, right, context)
                    // Of this one Spark's third mode knows the division by zero, and fails for the overflow.
                    : it instanceof IntegralDivide ? quotient(left, right, context)
                    : null;
        }

        private static Expression quotient(Expression left, Expression right, NumericEvalContext context) {
            Expression found = new TryEval(new IntegralDivide(left, right, context));
            if (!(left.dataType() instanceof DecimalType) || !left.deterministic() || !right.deterministic()) {
                return found;
            }
            Expression whole = new Cast(new Divide(left, right, context), DataTypes.DoubleType, Option.empty(), NULL);
            Expression most = Literal.create(Double.valueOf(TOO_LARGE), DataTypes.DoubleType);
            return new If(new LessThan(new Abs(whole, false), most), found, Literal.create(null, DataTypes.LongType));
        }

        private static Expression minus(Expression of) {
            return new Subtract(zero(of.dataType()), of, new NumericEvalContext(NULL, true));
        }

        private static Expression zero(DataType type) {
            return new Cast(Literal.create(Integer.valueOf(0), DataTypes.IntegerType), type, Option.empty(), NULL);
        }

        private static NumericEvalContext checked(NumericEvalContext context) {
            return context.copy(NULL, context.allowDecimalPrecisionLoss());
        }

        private static boolean wraps(Enumeration.Value mode) {
            return WRAPS.equals(mode);
        }

        private static boolean isWhole(DataType type) {
            return type instanceof IntegralType;
        }
    }
}
