"""The materializer: reads changelogs from Kafka and keeps Redis in step with them.

Words of this room: a partition is *open* while its records are read, and *held* names such a partition in the code. A
*mark* is the highest version of a source partition that a feed has stored. An *addition* is a record that a
materializer, and not the pipeline, has written to a changelog. *Doubtful* is a partition with a batch that Redis may
never take.
"""
