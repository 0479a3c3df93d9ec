package ags1.interop.parquet;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.page.PageReader;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.api.ReadSupport;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;

/** Reads rows, or the decrypted and decompressed pages without decoding them. */
final class ReadCommand {
  private ReadCommand() {}

  static ObjectNode run(Options request, Configuration configuration, FileDecryptionProperties decryption)
      throws Exception {
    Path path = new Path(request.text("path"));
    HadoopInputFile file = HadoopInputFile.fromPath(path, configuration);
    ParquetReadOptions options = readOptions(request, configuration, decryption, path);
    ObjectNode answer = ParquetPeer.JSON.createObjectNode();
    MessageType projection = null;
    try (ParquetFileReader reader = ParquetFileReader.open(file, options)) {
      if (request.has("columns")) {
        projection = project(reader.getFileMetaData().getSchema(), request.texts("columns"));
        reader.setRequestedSchema(projection);
      }
      if (request.flag("pages_only", false)) {
        return pages(reader, answer);
      }
      // Asked only with a filter, because the count reads the column index of every row group.
      if (request.has("filter")) {
        answer.put("kept_row_groups", reader.getRowGroups().size());
        answer.put("kept_rows", reader.getFilteredRecordCount());
      }
    }
    if (projection != null) {
      configuration.set(ReadSupport.PARQUET_READ_SCHEMA, projection.toString());
    }
    return rows(request, configuration, decryption, path, answer);
  }

  private static ParquetReadOptions readOptions(
      Options request, Configuration configuration, FileDecryptionProperties decryption, Path path) {
    return HadoopReadOptions.builder(configuration, path)
        .withDecryption(decryption)
        .withRecordFilter(Filters.of(request))
        .useStatsFilter(request.flag("use_statistics", true))
        .useDictionaryFilter(request.flag("use_dictionary", true))
        .useBloomFilter(request.flag("use_bloom", true))
        .useColumnIndexFilter(request.flag("use_column_index", true))
        .usePageChecksumVerification(request.flag("verify_checksums", true))
        .build();
  }

  private static ObjectNode rows(
      Options request,
      Configuration configuration,
      FileDecryptionProperties decryption,
      Path path,
      ObjectNode answer)
      throws Exception {
    boolean digesting = request.flag("digest", true);
    long limit = request.number("limit", 100);
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    List<String> first = new ArrayList<>();
    long count = 0;
    long started = System.nanoTime();
    ParquetReader.Builder<Group> builder = ParquetReader.builder(new GroupReadSupport(), path)
        .withConf(configuration)
        .withDecryption(decryption)
        .withFilter(Filters.of(request))
        .useStatsFilter(request.flag("use_statistics", true))
        .useDictionaryFilter(request.flag("use_dictionary", true))
        .useBloomFilter(request.flag("use_bloom", true))
        .useColumnIndexFilter(request.flag("use_column_index", true))
        .useRecordFilter(request.flag("use_record_filter", true))
        .usePageChecksumVerification(request.flag("verify_checksums", true));
    try (ParquetReader<Group> reader = builder.build()) {
      for (Group row = reader.read(); row != null; row = reader.read()) {
        if (digesting || count < limit) {
          String canonical = CanonicalRow.of(row);
          digest.update(canonical.getBytes(StandardCharsets.UTF_8));
          digest.update((byte) '\n');
          if (count < limit) {
            first.add(canonical);
          }
        }
        count++;
      }
    }
    answer.put("seconds", (System.nanoTime() - started) / 1e9);
    answer.put("count", count);
    if (digesting) {
      answer.put("sha256", Options.hex(digest.digest()));
    }
    ArrayNode texts = answer.putArray("rows");
    first.forEach(texts::add);
    return answer;
  }

  /** Reads every page of the columns that the reader was asked for; a page is decompressed, its values stay encoded. */
  private static ObjectNode pages(ParquetFileReader reader, ObjectNode answer) throws IOException {
    long pages = 0;
    long values = 0;
    long bytes = 0;
    List<ColumnDescriptor> columns = reader.getFileMetaData().getSchema().getColumns();
    long started = System.nanoTime();
    for (PageReadStore store = reader.readNextRowGroup(); store != null; store = reader.readNextRowGroup()) {
      for (ColumnDescriptor column : columns) {
        PageReader pageReader;
        try {
          pageReader = store.getPageReader(column);
        } catch (IllegalArgumentException notProjected) {
          continue;
        }
        pageReader.readDictionaryPage();
        for (var page = pageReader.readPage(); page != null; page = pageReader.readPage()) {
          pages++;
          values += page.getValueCount();
          bytes += page.getUncompressedSize();
        }
      }
    }
    return answer
        .put("seconds", (System.nanoTime() - started) / 1e9)
        .put("pages", pages)
        .put("values", values)
        .put("uncompressed_bytes", bytes);
  }

  /** The part of the schema with the named fields, each given as the dotted path of a leaf or of a whole group. */
  private static MessageType project(MessageType schema, List<String> wanted) {
    for (String each : wanted) {
      if (!contains(schema, each)) {
        throw new IllegalArgumentException("no column " + each);
      }
    }
    GroupType kept = keep(schema, "", wanted);
    return new MessageType(schema.getName(), kept == null ? List.of() : kept.getFields());
  }

  private static boolean contains(MessageType schema, String path) {
    Type type = schema;
    for (String part : path.split("\\.")) {
      if (type.isPrimitive() || !type.asGroupType().containsField(part)) {
        return false;
      }
      type = type.asGroupType().getType(part);
    }
    return true;
  }

  private static GroupType keep(GroupType group, String prefix, List<String> wanted) {
    List<Type> kept = new ArrayList<>();
    for (Type field : group.getFields()) {
      String path = prefix + field.getName();
      if (wanted.contains(path)) {
        kept.add(field);
      } else if (!field.isPrimitive()) {
        GroupType part = keep(field.asGroupType(), path + ".", wanted);
        if (part != null) {
          kept.add(part);
        }
      }
    }
    return kept.isEmpty() ? null : group.withNewFields(kept);
  }
}
