package ags1.servers;

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS with one data node, on loopback. It prints its ports, and ends when standard input does. */
public final class Hdfs {
  private Hdfs() {}

  /** The argument is the directory that holds names and blocks. */
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.set(DFSConfigKeys.DFS_DATANODE_HOST_NAME_KEY, "127.0.0.1");
    // Whoever asks may do everything: the tests are about bytes.
    conf.setBoolean(DFSConfigKeys.DFS_PERMISSIONS_ENABLED_KEY, false);
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, new File(arguments[0])).numDataNodes(1).build();
    try {
      cluster.waitActive();
      System.out.println(cluster.getNameNodePort() + " " + cluster.getNameNode().getHttpAddress().getPort());
      System.out.flush();
      while (System.in.read() >= 0) {}
    } finally {
      cluster.shutdown(true);
    }
    System.exit(0);
  }
}
