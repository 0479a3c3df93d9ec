package org.apache.iceberg.encryption;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.EncryptedKeyParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;

/**
 * Drives the encryption manager over a table's list of encryption keys.
 *
 * <p>Releases up to 1.10 have no such manager, so what is missing there is reached by reflection.
 */
public final class KeyListBridge {
  private final Kms kms;
  private final EncryptionManager manager;

  private KeyListBridge(EncryptionManager manager, Kms kms) {
    this.manager = manager;
    this.kms = kms;
  }

  /** A manager over parsed entries, as {@code EncryptionUtil} makes it for a table of these properties. */
  public static KeyListBridge of(
      List<String> entries, String tableKeyId, int dataKeyLength, String masterKeys, long timeShift) throws Exception {
    List<EncryptedKey> keys = new ArrayList<>();
    for (String entry : entries) {
      keys.add(EncryptedKeyParser.fromJson(entry));
    }
    KeyListBridge bridge = of(keys, properties(tableKeyId, dataKeyLength), masterKeys);
    call(StandardEncryptionManager.class, bridge.manager, "setTestTimeShift", timeShift);
    return bridge;
  }

  private static KeyListBridge of(List<EncryptedKey> keys, Map<String, String> properties, String masterKeys)
      throws Exception {
    Kms kms = new Kms(masterKeys);
    Object manager = call(EncryptionUtil.class, null, "createEncryptionManager", keys, properties, kms);
    return new KeyListBridge((EncryptionManager) manager, kms);
  }

  private static Map<String, String> properties(String tableKeyId, int dataKeyLength) {
    return Map.of("encryption.key-id", tableKeyId, "encryption.data-key-length", String.valueOf(dataKeyLength));
  }

  /** Wraps and registers key metadata; answers the id of the new entry. */
  public String add(byte[] keyMetadata) throws Exception {
    return (String)
        call(
            StandardEncryptionManager.class,
            manager,
            "addManifestListKeyMetadata",
            StandardKeyMetadata.parse(ByteBuffer.wrap(keyMetadata)));
  }

  /** Opens an entry as the reader of a snapshot does. */
  public byte[] open(String keyId) throws Exception {
    Class<?> type = Class.forName("org.apache.iceberg.ManifestListFile");
    Object file =
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, args) -> method.getName().equals("encryptionKeyID") ? keyId : null);
    return Ags1Bridge.bytes(
        (ByteBuffer) call(EncryptionUtil.class, null, "decryptManifestListKeyMetadata", file, manager));
  }

  /** The manager's entries as JSON. */
  @SuppressWarnings("unchecked")
  public List<String> entries() throws Exception {
    List<String> entries = new ArrayList<>();
    Map<String, EncryptedKey> keys =
        (Map<String, EncryptedKey>) call(EncryptionUtil.class, null, "encryptionKeys", manager);
    for (EncryptedKey key : keys.values()) {
      entries.add(EncryptedKeyParser.toJson(key, false));
    }
    return entries;
  }

  /** How often the manager asked for wrapping, and for unwrapping. */
  public String calls() {
    return kms.wraps + "," + kms.unwraps;
  }

  /** Reads an entry and writes it again. */
  public static String rewritten(String entry) {
    return EncryptedKeyParser.toJson(EncryptedKeyParser.fromJson(entry), false);
  }

  /** Reads a table's metadata and writes it again. */
  public static String rewrittenTable(String metadata) {
    return TableMetadataParser.toJson(TableMetadataParser.fromJson(metadata));
  }

  /** Opens the key metadata of a snapshot's manifest list with nothing but the table's metadata and a KMS. */
  public static byte[] openSnapshot(String json, long snapshotId, String masterKeys) throws Exception {
    TableMetadata metadata = TableMetadataParser.fromJson(json);
    KeyListBridge bridge = of(metadata.encryptionKeys(), metadata.properties(), masterKeys);
    return bridge.open(metadata.snapshot(snapshotId).keyId());
  }

  private static Object call(Class<?> owner, Object target, String name, Object... arguments) throws Exception {
    for (Method method : owner.getDeclaredMethods()) {
      if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
        method.setAccessible(true);
        try {
          return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
          if (e.getCause() instanceof Exception cause) {
            throw cause;
          }
          throw e;
        }
      }
    }
    throw new UnsupportedOperationException("This version has no " + name);
  }

  /** Master keys in memory, in the format of Iceberg's own mock: nonce, ciphertext, tag, and no AAD. */
  public static final class Kms implements KeyManagementClient {
    private final Map<String, byte[]> masterKeys = new TreeMap<>();
    private int wraps = 0;
    private int unwraps = 0;

    /** Takes {@code id=hex} pairs, separated by commas. */
    Kms(String pairs) {
      for (String pair : pairs.split(",")) {
        String[] parts = pair.split("=");
        masterKeys.put(parts[0], HexFormat.of().parseHex(parts[1]));
      }
    }

    @Override
    public ByteBuffer wrapKey(ByteBuffer key, String wrappingKeyId) {
      wraps++;
      byte[] wrapped = new Ciphers.AesGcmEncryptor(masterKey(wrappingKeyId)).encrypt(Ags1Bridge.bytes(key), null);
      return ByteBuffer.wrap(wrapped);
    }

    @Override
    public ByteBuffer unwrapKey(ByteBuffer wrappedKey, String wrappingKeyId) {
      unwraps++;
      byte[] key = new Ciphers.AesGcmDecryptor(masterKey(wrappingKeyId)).decrypt(Ags1Bridge.bytes(wrappedKey), null);
      return ByteBuffer.wrap(key);
    }

    private byte[] masterKey(String id) {
      byte[] key = masterKeys.get(id);
      if (key == null) {
        throw new IllegalArgumentException("Cannot wrap or unwrap, because master key " + id + " is not found");
      }
      return key;
    }

    @Override
    public void initialize(Map<String, String> properties) {}
  }
}
