package ags1.interop.parquet;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.parquet.crypto.ColumnDecryptionProperties;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.hadoop.metadata.ColumnPath;

/** Explicit encryption and decryption properties from JSON. */
final class Crypto {
  private Crypto() {}

  /** Answers null, which means a plaintext file, without options. */
  static FileEncryptionProperties encryption(Options options) {
    if (options == null) {
      return null;
    }
    FileEncryptionProperties.Builder builder = FileEncryptionProperties.builder(options.bytes("footer_key"));
    builder.withAlgorithm(ParquetCipher.valueOf(options.text("algorithm", "AES_GCM_V1")));
    if (options.has("footer_key_metadata")) {
      builder.withFooterKeyMetadata(options.bytes("footer_key_metadata"));
    }
    if (options.flag("plaintext_footer", false)) {
      builder.withPlaintextFooter();
    }
    if (options.has("aad_prefix")) {
      builder.withAADPrefix(options.bytes("aad_prefix"));
    }
    if (!options.flag("store_aad_prefix", true)) {
      builder.withoutAADPrefixStorage();
    }
    if (options.has("column_keys")) {
      builder.withEncryptedColumns(columns(options.members("column_keys")));
    }
    if (options.flag("complete_columns", false)) {
      builder.withCompleteColumnEncryption();
    }
    return builder.build();
  }

  private static Map<ColumnPath, ColumnEncryptionProperties> columns(Map<String, JsonNode> keys) {
    Map<ColumnPath, ColumnEncryptionProperties> columns = new HashMap<>();
    keys.forEach((dotted, value) -> {
      // The builder that takes a String makes a path of one part, which fits no nested column.
      ColumnPath path = ColumnPath.fromDotString(dotted);
      // Without a key, the column is encrypted with the footer key.
      ColumnEncryptionProperties.Builder builder = ColumnEncryptionProperties.builder(path);
      Options options = new Options(value);
      if (options.has("key")) {
        builder.withKey(options.bytes("key"));
      }
      if (options.has("metadata")) {
        builder.withKeyMetaData(options.bytes("metadata"));
      }
      columns.put(path, builder.build());
    });
    return columns;
  }

  /** Answers null, with which only plaintext files and footers can be read, without options. */
  static FileDecryptionProperties decryption(Options options) {
    if (options == null) {
      return null;
    }
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder();
    if (options.has("footer_key")) {
      builder.withFooterKey(options.bytes("footer_key"));
    }
    if (options.has("column_keys")) {
      Map<ColumnPath, ColumnDecryptionProperties> columns = new HashMap<>();
      options.members("column_keys").forEach((dotted, key) -> {
        ColumnPath path = ColumnPath.fromDotString(dotted);
        byte[] bytes = Options.parseHex(key.asText());
        columns.put(path, ColumnDecryptionProperties.builder(path).withKey(bytes).build());
      });
      builder.withColumnKeys(columns);
    }
    if (options.has("key_retriever")) {
      builder.withKeyRetriever(retriever(options.members("key_retriever")));
    }
    if (options.has("aad_prefix")) {
      builder.withAADPrefix(options.bytes("aad_prefix"));
    }
    if (options.flag("plaintext_files_allowed", false)) {
      builder.withPlaintextFilesAllowed();
    }
    if (!options.flag("check_signature", true)) {
      builder.withoutFooterSignatureVerification();
    }
    return builder.build();
  }

  private static DecryptionKeyRetriever retriever(Map<String, JsonNode> keys) {
    Map<String, String> byMetadata = new HashMap<>();
    keys.forEach((metadata, key) -> byMetadata.put(metadata, key.asText()));
    return metadata -> {
      String key = byMetadata.get(Options.hex(metadata));
      if (key == null) {
        throw new KeyAccessDeniedException("no key for the key metadata " + Options.hex(metadata));
      }
      return Options.parseHex(key);
    };
  }
}
