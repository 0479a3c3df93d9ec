package ags1.interop.parquet;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.rewrite.ParquetRewriter;
import org.apache.parquet.hadoop.rewrite.RewriteOptions;

/** Encrypts a file with ParquetRewriter, page by page and without decoding. */
final class RewriteCommand {
  private RewriteCommand() {}

  static ObjectNode run(Options request) throws Exception {
    String target = request.text("target");
    ObjectNode answer = ParquetPeer.JSON.createObjectNode();
    ArrayNode seconds = answer.putArray("seconds");
    for (long round = request.number("rounds", 1); round > 0; round--) {
      // The rewriter creates its output and refuses one that exists.
      Files.deleteIfExists(java.nio.file.Path.of(target));
      RewriteOptions options = options(request, target);
      long started = System.nanoTime();
      try (ParquetRewriter rewriter = new ParquetRewriter(options)) {
        rewriter.processBlocks();
      }
      seconds.add((System.nanoTime() - started) / 1e9);
    }
    return answer.put("bytes", Files.size(java.nio.file.Path.of(target)));
  }

  private static RewriteOptions options(Options request, String target) throws Exception {
    RewriteOptions.Builder builder =
        new RewriteOptions.Builder(Hadoop.configuration(), new Path(request.text("source")), new Path(target));
    if (request.has("columns")) {
      builder.encrypt(request.texts("columns"));
    }
    if (request.has("encryption")) {
      builder.encryptionProperties(Crypto.encryption(request.optional("encryption")));
    }
    if (request.has("codec")) {
      builder.transform(CompressionCodecName.valueOf(request.text("codec")));
    }
    return builder.build();
  }
}
