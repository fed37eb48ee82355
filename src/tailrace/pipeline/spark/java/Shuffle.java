package tailrace;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelFuture;
import io.netty.util.Attribute;
import io.netty.util.AttributeKey;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.netty.SparkTransportConf;
import org.apache.spark.network.server.AbstractAuthRpcHandler;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleClientHandler;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import org.apache.spark.shuffle.streaming.StreamingShuffleServerHandler;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.util.ErrorNotifier;
import org.apache.spark.util.TaskCompletionListener;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * Spark's shuffle of real-time mode, but a row that comes alone is sent at once, and nobody else gets it.
 *
 * <p>Spark's own leaves a row in a buffer until a thread passes by, each millisecond at best. Its writers are servers
 * that ask nobody for a secret, on all addresses. Here they ask for it as Spark's other servers do, and encrypt if
 * those do; and if all tasks are in this process, they listen on loopback only.
 */
public final class Shuffle extends StreamingShuffleManager {
    // Rows that follow each other come some microseconds apart; those that were waited for longer come one by one.
    static final long ALONE_NANOS = 100000L;
    static final long MOVE_SECONDS = 60L;
    static final AttributeKey GUARD = AttributeKey.valueOf("tailrace.shuffle.guard");

    // Servers of this process by the task that has started them: the ports that they have on loopback.
    static final ConcurrentHashMap MOVED = new ConcurrentHashMap();

    // What Spark keeps to itself; if a version of it is without one of them, this class does not load.
    static final Field LISTENER = field("channelFuture");
    static final Field BOOTSTRAP = field("bootstrap");
    static final Method HANDLE = method("streamingShuffleHandle");
    static final Method CONF = method("clientConf");
    static final Method FACTORIES = method("clientFactories");
    static final Method LIMIT = method("perWriterByteLimit");

    // Handles, because a compiler that looks at all methods of this class does not find the types of some.
    static final Class ENVIRONMENT = environment();
    static final MethodHandle CURRENT = handle("get", ENVIRONMENT, true);
    static final MethodHandle EXECUTOR = handle("executorId", String.class, false);
    static final MethodHandle SETTINGS = handle("conf", SparkConf.class, false);
    static final MethodHandle SECURITY = handle("securityManager", SecurityManager.class, false);

    public ShuffleWriter getWriter(ShuffleHandle handle, long task, TaskContext context, ShuffleWriteMetricsReporter metrics) {
        ErrorNotifier errors = new ErrorNotifier();
        Acknowledged acknowledged = new Acknowledged();
        Door door = new Door(acknowledged, (BaseShuffleHandle) handle, context, errors);
        Writer writer = new Writer(handle, task, context, door, errors);
        acknowledged.writer = writer;
        if (inThisProcess()) {
            listenOnLoopback(writer.server(), key(handle, task), context);
        }
        return writer;
    }

    public ShuffleReader getReader(
            ShuffleHandle handle,
            int startMap,
            int endMap,
            int startPartition,
            int endPartition,
            TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        return new Reader(handle, context);
    }

    /** Whether all tasks are in the process of the driver. */
    static boolean inThisProcess() {
        return "driver".equals(ask(EXECUTOR));
    }

    static String key(ShuffleHandle handle, long task) {
        return handle.shuffleId() + " " + (int) task;
    }

    /** Have a server listen on loopback instead of all addresses, and tell the readers where. */
    static void listenOnLoopback(TransportServer server, String key, TaskContext context) {
        try {
            ChannelFuture everywhere = (ChannelFuture) LISTENER.get(server);
            everywhere.channel().close().syncUninterruptibly();
            InetSocketAddress loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
            ChannelFuture here = ((ServerBootstrap) BOOTSTRAP.get(server)).bind(loopback).syncUninterruptibly();
            // The one that Spark closes in the end.
            LISTENER.set(server, here);
            moved(key).complete(Integer.valueOf(((InetSocketAddress) here.channel().localAddress()).getPort()));
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
        context.addTaskCompletionListener(new Forget(key));
    }

    static CompletableFuture moved(String key) {
        CompletableFuture made = new CompletableFuture();
        Object found = MOVED.putIfAbsent(key, made);
        return found == null ? made : (CompletableFuture) found;
    }

    /** What Spark has in this process. */
    static Object ask(MethodHandle what) {
        try {
            Object environment = CURRENT.invokeWithArguments(Collections.EMPTY_LIST);
            return what.invokeWithArguments(Collections.singletonList(environment));
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    static Class environment() {
        try {
            return Class.forName("org.apache.spark.SparkEnv", false, StreamingShuffleManager.class.getClassLoader());
        } catch (ClassNotFoundException error) {
            throw new IllegalStateException(error);
        }
    }

    static MethodHandle handle(String name, Class type, boolean fixed) {
        try {
            MethodType method = MethodType.methodType(type);
            MethodHandles.Lookup all = MethodHandles.publicLookup();
            return fixed ? all.findStatic(ENVIRONMENT, name, method) : all.findVirtual(ENVIRONMENT, name, method);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static Field field(String name) {
        try {
            Field found = TransportServer.class.getDeclaredField(name);
            found.setAccessible(true);
            return found;
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException(error);
        }
    }

    static Method method(String name) {
        try {
            Method found = StreamingShuffleReader.class.getDeclaredMethod(name, new Class[0]);
            found.setAccessible(true);
            return found;
        } catch (NoSuchMethodException error) {
            throw new IllegalStateException(error);
        }
    }

    static final class Forget implements TaskCompletionListener {
        final String key;

        Forget(String key) {
            this.key = key;
        }

        public void onTaskCompletion(TaskContext context) {
            MOVED.remove(key);
        }
    }

    /** Tells the writer that a reader has read everything. */
    static final class Acknowledged extends AbstractFunction2 {
        volatile StreamingShuffleWriter writer;

        public Object apply(Object reader, Object number) {
            writer.onTerminationAckReceived(((Integer) reader).intValue(), ((Long) number).longValue());
            return BoxedUnit.UNIT;
        }
    }

    /** A writer's side of a connection, for those who have shown that they know the secret, if there is one. */
    static final class Door extends StreamingShuffleServerHandler {
        final AuthServerBootstrap guards;

        Door(Acknowledged acknowledged, BaseShuffleHandle handle, TaskContext context, ErrorNotifier errors) {
            super(acknowledged, handle.shuffleId(), handle.dependency().partitioner().numPartitions(), context, errors);
            SecurityManager security = (SecurityManager) ask(SECURITY);
            TransportConf conf = SparkTransportConf.fromSparkConf(
                    (SparkConf) ask(SETTINGS), "streaming-shuffle-writer", 1, Option.empty(), Option.empty());
            this.guards = security.isAuthenticationEnabled() ? new AuthServerBootstrap(conf, security) : null;
        }

        public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
            if (guards == null) {
                welcome(client, message, callback);
            } else {
                guard(client).receive(client, message, callback);
            }
        }

        public void receive(TransportClient client, ByteBuffer message) {
            if (guards == null) {
                super.receive(client, message);
            } else {
                guard(client).receive(client, message);
            }
        }

        /** What strangers do wrong is no error of the task. */
        public void exceptionCaught(Throwable cause, TransportClient client) {
            if (guards == null || guard(client).isAuthenticated()) {
                super.exceptionCaught(cause, client);
            } else {
                client.close();
            }
        }

        public void channelInactive(TransportClient client) {
            if (guards != null) {
                guard(client).channelInactive(client);
            }
        }

        void welcome(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
            super.receive(client, message, callback);
        }

        AbstractAuthRpcHandler guard(TransportClient client) {
            Attribute kept = client.getChannel().attr(GUARD);
            if (kept.get() == null) {
                kept.set(guards.doBootstrap(client.getChannel(), new Inside(this)));
            }
            return (AbstractAuthRpcHandler) kept.get();
        }
    }

    /** What is behind the guard. */
    static final class Inside extends RpcHandler {
        final Door door;

        Inside(Door door) {
            this.door = door;
        }

        public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
            door.welcome(client, message, callback);
        }

        public StreamManager getStreamManager() {
            return null;
        }
    }

    static final class Writer extends StreamingShuffleWriter {
        Writer(ShuffleHandle handle, long task, TaskContext context, Door door, ErrorNotifier errors) {
            super(handle, task, context, Option.apply(door), errors);
        }

        public void write(Iterator rows) {
            super.write(new Rows(rows, this));
        }
    }

    /** A reader's side of a connection. Spark's asks for rows as soon as it is connected; this one is told when. */
    static final class Guest extends StreamingShuffleClientHandler {
        Guest(
                int task,
                int partition,
                LinkedBlockingQueue queue,
                int shuffle,
                long limit,
                TaskContext context,
                ErrorNotifier errors) {
            super(task, partition, queue, shuffle, limit, context, errors);
        }

        public void channelActive(TransportClient client) {}

        void begin(TransportClient client) {
            super.channelActive(client);
        }
    }

    static final class Confirmed extends AbstractFunction1 {
        final StreamingShuffleReader reader;

        Confirmed(StreamingShuffleReader reader) {
            this.reader = reader;
        }

        public Object apply(Object writer) {
            reader.onTermAckResponse(((Integer) writer).intValue());
            return BoxedUnit.UNIT;
        }
    }

    static final class Reader extends StreamingShuffleReader {
        Reader(ShuffleHandle handle, TaskContext context) {
            super(handle, context, Option.empty(), new ErrorNotifier());
        }

        // Spark calls it from another thread, also before the constructor has ended: fields of our own may be unset.
        public TransportClient createClient(int task, String host, int port) {
            try {
                ShuffleHandle handle = (ShuffleHandle) HANDLE.invoke(this, new Object[0]);
                int found = port;
                if (inThisProcess()) {
                    Object moved = moved(key(handle, task)).get(MOVE_SECONDS, TimeUnit.SECONDS);
                    found = ((Integer) moved).intValue();
                }
                SecurityManager security = (SecurityManager) ask(SECURITY);
                if (!security.isAuthenticationEnabled()) {
                    return super.createClient(task, host, found);
                }
                TransportConf conf = (TransportConf) CONF.invoke(this, new Object[0]);
                long limit = ((Long) LIMIT.invoke(this, new Object[0])).longValue();
                Guest guest = new Guest(
                        task, context().partitionId(), messageQueue(), handle.shuffleId(), limit, context(), errorNotifier());
                guest.setOnTermAckResponseHandler(new Confirmed(this));
                AuthClientBootstrap secret = new AuthClientBootstrap(conf, security.getSaslUser(), security);
                TransportClientFactory factory =
                        new TransportContext(conf, guest).createClientFactory(Collections.singletonList(secret));
                ((Collection) FACTORIES.invoke(this, new Object[0])).add(factory);
                TransportClient client = factory.createClient(host, found);
                guest.begin(client);
                return client;
            } catch (RuntimeException error) {
                throw error;
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }
    }

    /** The rows of a task. Whoever asks whether there is another has buffered the one before. */
    static final class Rows extends AbstractIterator {
        final Iterator rows;
        final StreamingShuffleWriter writer;
        boolean alone;

        Rows(Iterator rows, StreamingShuffleWriter writer) {
            this.rows = rows;
            this.writer = writer;
        }

        public boolean hasNext() {
            if (alone) {
                StreamingShuffleWriter.ShardState[] shards = writer.shards();
                for (int shard = 0; shard < shards.length; shard++) {
                    shards[shard].send();
                }
            }
            long asked = System.nanoTime();
            boolean more = rows.hasNext();
            alone = System.nanoTime() - asked > ALONE_NANOS;
            return more;
        }

        public Object next() {
            return rows.next();
        }
    }
}
