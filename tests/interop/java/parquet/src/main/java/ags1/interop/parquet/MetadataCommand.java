package ags1.interop.parquet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.EncodingStats;
import org.apache.parquet.column.statistics.SizeStatistics;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.InternalFileDecryptor;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.internal.column.columnindex.ColumnIndex;
import org.apache.parquet.internal.column.columnindex.OffsetIndex;
import org.apache.parquet.internal.hadoop.metadata.IndexReference;
import org.apache.parquet.io.api.Binary;

/** Dumps what parquet-java sees in a footer, with the indexes and Bloom filters that it points to. */
final class MetadataCommand {
  private MetadataCommand() {}

  static ObjectNode run(Options request, Configuration configuration, FileDecryptionProperties decryption)
      throws Exception {
    Path path = new Path(request.text("path"));
    HadoopInputFile file = HadoopInputFile.fromPath(path, configuration);
    Map<String, JsonNode> probes = request.members("bloom_probe");
    try (ParquetFileReader reader = ParquetFileReader.open(
        file, HadoopReadOptions.builder(configuration, path).withDecryption(decryption).build())) {
      FileMetaData footer = reader.getFileMetaData();
      ObjectNode answer = ParquetPeer.JSON.createObjectNode();
      answer.put("created_by", footer.getCreatedBy());
      answer.put("encryption", String.valueOf(footer.getEncryptionType()));
      answer.put("schema", footer.getSchema().toString());
      answer.put("rows", reader.getRecordCount());
      ObjectNode pairs = answer.putObject("key_values");
      footer.getKeyValueMetaData().forEach(pairs::put);
      ArrayNode groups = answer.putArray("row_groups");
      for (BlockMetaData block : reader.getRowGroups()) {
        ObjectNode group = groups.addObject();
        group.put("rows", block.getRowCount());
        group.put("ordinal", block.getOrdinal());
        group.put("total_byte_size", block.getTotalByteSize());
        ArrayNode columns = group.putArray("columns");
        for (ColumnChunkMetaData column : block.getColumns()) {
          column(reader, footer.getFileDecryptor(), column, probes, columns.addObject());
        }
      }
      return answer;
    }
  }

  private static void column(
      ParquetFileReader reader,
      InternalFileDecryptor decryptor,
      ColumnChunkMetaData column,
      Map<String, JsonNode> probes,
      ObjectNode answer) {
    String path = column.getPath().toDotString();
    answer.put("path", path);
    answer.put("separate_metadata", column.isEncrypted());
    try {
      chunk(column, answer);
      // Known only after the metadata was decrypted; under an encrypted footer and its key, there is none to decrypt.
      answer.put("encrypted", isEncrypted(decryptor, column));
    } catch (RuntimeException e) {
      // The rest of such a column cannot be read either.
      answer.put("unreadable", e.getClass().getName() + ": " + e.getMessage());
      return;
    }
    readable(answer, "bloom_filter", column.getBloomFilterOffset() >= 0, node -> {
      node.put("offset", column.getBloomFilterOffset());
      node.put("length", column.getBloomFilterLength());
      bloomFilter(reader.readBloomFilter(column), probes.get(path), node);
    });
    IndexReference columnIndex = column.getColumnIndexReference();
    readable(answer, "column_index", columnIndex != null, node -> {
      node.put("offset", columnIndex.getOffset()).put("length", columnIndex.getLength());
      columnIndex(reader.readColumnIndex(column), node);
    });
    IndexReference offsetIndex = column.getOffsetIndexReference();
    readable(answer, "offset_index", offsetIndex != null, node -> {
      node.put("offset", offsetIndex.getOffset()).put("length", offsetIndex.getLength());
      offsetIndex(reader.readOffsetIndex(column), node);
    });
  }

  private interface Filler {
    void fill(ObjectNode node) throws Exception;
  }

  /** Null for what the file does not have, and a member {@code unreadable} with the reason for what fails. */
  private static void readable(ObjectNode answer, String name, boolean present, Filler filler) {
    if (!present) {
      answer.putNull(name);
      return;
    }
    ObjectNode node = answer.putObject(name);
    try {
      filler.fill(node);
    } catch (Exception e) {
      node.put("unreadable", e.getClass().getName() + ": " + e.getMessage());
    }
  }

  private static boolean isEncrypted(InternalFileDecryptor decryptor, ColumnChunkMetaData column) {
    return decryptor != null && !decryptor.plaintextFile() && decryptor.getColumnSetup(column.getPath()).isEncrypted();
  }

  private static void chunk(ColumnChunkMetaData column, ObjectNode answer) {
    answer.put("values", column.getValueCount());
    answer.put("type", column.getPrimitiveType().getPrimitiveTypeName().name());
    answer.put("codec", column.getCodec().name());
    answer.put("total_size", column.getTotalSize());
    answer.put("total_uncompressed_size", column.getTotalUncompressedSize());
    answer.put("first_data_page_offset", column.getFirstDataPageOffset());
    answer.put("dictionary_page_offset", column.getDictionaryPageOffset());
    answer.put("starting_position", column.getStartingPos());
    ArrayNode encodings = answer.putArray("encodings");
    column.getEncodings().stream().map(Encoding::name).sorted().forEach(encodings::add);
    EncodingStats stats = column.getEncodingStats();
    if (stats == null) {
      answer.putNull("encoding_stats");
    } else {
      ObjectNode node = answer.putObject("encoding_stats");
      node.put("v2_pages", stats.usesV2Pages());
      ObjectNode dictionary = node.putObject("dictionary_pages");
      stats.getDictionaryEncodings().forEach(e -> dictionary.put(e.name(), stats.getNumDictionaryPagesEncodedAs(e)));
      ObjectNode data = node.putObject("data_pages");
      stats.getDataEncodings().forEach(e -> data.put(e.name(), stats.getNumDataPagesEncodedAs(e)));
    }
    statistics(column.getStatistics(), answer);
    sizes(column.getSizeStatistics(), answer);
  }

  private static void statistics(Statistics<?> statistics, ObjectNode answer) {
    if (statistics == null || statistics.isEmpty()) {
      answer.putNull("statistics");
      return;
    }
    ObjectNode node = answer.putObject("statistics");
    if (statistics.isNumNullsSet()) {
      node.put("nulls", statistics.getNumNulls());
    }
    if (statistics.hasNonNullValue()) {
      node.put("min", Options.hex(statistics.getMinBytes())).put("max", Options.hex(statistics.getMaxBytes()));
      node.put("min_text", statistics.minAsString()).put("max_text", statistics.maxAsString());
    }
  }

  private static void sizes(SizeStatistics sizes, ObjectNode answer) {
    if (sizes == null || !sizes.isValid()) {
      answer.putNull("size_statistics");
      return;
    }
    ObjectNode node = answer.putObject("size_statistics");
    sizes.getUnencodedByteArrayDataBytes().ifPresent(each -> node.put("unencoded_byte_array_data_bytes", each));
    node.set("repetition_levels", numbers(sizes.getRepetitionLevelHistogram()));
    node.set("definition_levels", numbers(sizes.getDefinitionLevelHistogram()));
  }

  private static void bloomFilter(BloomFilter filter, JsonNode probe, ObjectNode node) {
    node.put("bytes", filter.getBitsetSize());
    if (probe != null) {
      ArrayNode found = node.putArray("found");
      for (JsonNode value : probe) {
        long hash = value.isTextual()
            ? filter.hash(Binary.fromString(value.asText()))
            : value.isFloatingPointNumber() ? filter.hash(value.asDouble()) : filter.hash(value.asLong());
        found.add(filter.findHash(hash));
      }
    }
  }

  private static void columnIndex(ColumnIndex index, ObjectNode node) {
    node.put("boundary_order", index.getBoundaryOrder().name());
    ArrayNode nullPages = node.putArray("null_pages");
    index.getNullPages().forEach(nullPages::add);
    node.set("null_counts", numbers(index.getNullCounts()));
    node.set("min", values(index.getMinValues()));
    node.set("max", values(index.getMaxValues()));
    node.set("repetition_levels", numbers(index.getRepetitionLevelHistogram()));
    node.set("definition_levels", numbers(index.getDefinitionLevelHistogram()));
  }

  private static void offsetIndex(OffsetIndex index, ObjectNode node) {
    ArrayNode pages = node.putArray("pages");
    for (int i = 0; i < index.getPageCount(); i++) {
      pages
          .addObject()
          .put("offset", index.getOffset(i))
          .put("size", index.getCompressedPageSize(i))
          .put("first_row", index.getFirstRowIndex(i));
    }
  }

  private static JsonNode numbers(List<Long> values) {
    return ParquetPeer.JSON.valueToTree(values);
  }

  private static JsonNode values(List<ByteBuffer> values) {
    ArrayNode array = ParquetPeer.JSON.createArrayNode();
    for (ByteBuffer value : values) {
      byte[] bytes = new byte[value.remaining()];
      value.duplicate().get(bytes);
      array.add(Options.hex(bytes));
    }
    return array;
  }
}
