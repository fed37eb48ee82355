package tailrace;

import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Utils;

/**
 * Keeps the rows of a changelog in the partitions that its readers look for them in: as Kafka does by default, among as many
 * partitions as `tailrace.partitions` says. So a row stays where it is if somebody adds partitions to the topic.
 */
public final class Layout implements Partitioner {
    private int partitions;

    public void configure(Map settings) {
        partitions = Integer.parseInt(settings.get("tailrace.partitions").toString());
    }

    public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        return Utils.toPositive(Utils.murmur2(keyBytes)) % partitions;
    }

    public void close() {}
}
