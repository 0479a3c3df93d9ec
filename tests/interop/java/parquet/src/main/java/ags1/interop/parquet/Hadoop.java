package ags1.interop.parquet;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** The Hadoop configuration that every command starts from. */
final class Hadoop {
  private static final Configuration BASE = base();

  private Hadoop() {}

  private static Configuration base() {
    Configuration configuration = new Configuration();
    // The default local file system leaves .crc files beside its output and trusts stale ones on reading.
    configuration.set("fs.file.impl", RawLocalFileSystem.class.getName());
    return configuration;
  }

  static Configuration configuration() {
    return new Configuration(BASE);
  }
}
