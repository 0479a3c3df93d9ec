package ags1.interop.parquet;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;

/** Writes a sample file. */
final class WriteCommand {
  private WriteCommand() {}

  /** With null for the encryption, a crypto factory that the configuration names still has its say. */
  static ObjectNode run(Options request, Configuration configuration, FileEncryptionProperties encryption)
      throws Exception {
    String path = request.text("path");
    Sample sample = new Sample(request.number("seed", 0), request.flag("int96", false));
    long rows = request.number("rows", 100);
    long started = System.nanoTime();
    try (ParquetWriter<Group> writer = writer(request, configuration, encryption, sample, path)) {
      for (long row = 0; row < rows; row++) {
        writer.write(sample.group(row));
      }
    }
    double seconds = (System.nanoTime() - started) / 1e9;
    return ParquetPeer.JSON
        .createObjectNode()
        .put("rows", rows)
        .put("bytes", Files.size(java.nio.file.Path.of(path)))
        .put("seconds", seconds);
  }

  private static ParquetWriter<Group> writer(
      Options request, Configuration configuration, FileEncryptionProperties encryption, Sample sample, String path)
      throws Exception {
    ExampleParquetWriter.Builder builder = ExampleParquetWriter.builder(new Path(path));
    builder
        .withConf(configuration)
        .withType(sample.schema())
        .withEncryption(encryption)
        .withWriteMode(ParquetFileWriter.Mode.OVERWRITE)
        .withCompressionCodec(CompressionCodecName.valueOf(request.text("codec", "UNCOMPRESSED")))
        .withDictionaryEncoding(request.flag("dictionary", true))
        .withPageWriteChecksumEnabled(request.flag("checksum", true))
        .withWriterVersion(
            request.number("page_version", 1) == 2 ? WriterVersion.PARQUET_2_0 : WriterVersion.PARQUET_1_0);
    if (request.has("row_group_rows")) {
      builder.withRowGroupRowCountLimit((int) request.number("row_group_rows"));
    }
    if (request.has("row_group_bytes")) {
      builder.withRowGroupSize(request.number("row_group_bytes"));
    }
    if (request.has("page_rows")) {
      builder.withPageRowCountLimit((int) request.number("page_rows"));
    }
    if (request.has("page_bytes")) {
      builder.withPageSize((int) request.number("page_bytes"));
    }
    for (String column : request.texts("bloom")) {
      builder.withBloomFilterEnabled(column, true).withBloomFilterNDV(column, request.number("bloom_values", 10_000));
    }
    return builder.build();
  }
}
