package ags1.interop.parquet;

import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.KeyAccessDeniedException;

/**
 * The master keys of a test KMS, from lists of {@code id:base64,...} in the configuration.
 *
 * <p>The new list is the one to wrap with; with the old one, it makes a rotation.
 */
final class MasterKeys {
  static final String OLD_LIST = "parquet.encryption.key.list";
  static final String NEW_LIST = "parquet.encryption.new.key.list";
  static final AtomicLong WRAPS = new AtomicLong();
  static final AtomicLong UNWRAPS = new AtomicLong();

  private final Map<String, byte[]> keys = new HashMap<>();

  MasterKeys(Configuration configuration, String property) {
    for (String entry : configuration.getTrimmedStrings(property)) {
      int colon = entry.lastIndexOf(':');
      keys.put(entry.substring(0, colon), Base64.getDecoder().decode(entry.substring(colon + 1)));
    }
  }

  byte[] get(String id) {
    byte[] key = keys.get(id);
    if (key == null) {
      throw new KeyAccessDeniedException("no master key " + id);
    }
    return key;
  }
}
