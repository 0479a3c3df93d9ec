package ags1.interop.tables;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.iceberg.encryption.KeyManagementClient;

/**
 * A KMS with fixed master keys, given in the catalog's property {@code ags1.kms.keys} as {@code id=hex,id=hex}.
 *
 * <p>It wraps as Iceberg's own test KMS does, by AES-GCM without AAD: nonce, ciphertext, tag.
 */
public class FixedKms implements KeyManagementClient {
  private static final int NONCE = 12;
  private static final int TAG_BITS = 128;
  private static final SecureRandom RANDOM = new SecureRandom();

  private final Map<String, byte[]> masterKeys = new HashMap<>();

  @Override
  public void initialize(Map<String, String> properties) {
    String keys = properties.get("ags1.kms.keys");
    if (keys == null) {
      throw new IllegalArgumentException("The catalog has no property ags1.kms.keys");
    }
    for (String pair : keys.split(",")) {
      int equals = pair.indexOf('=');
      masterKeys.put(pair.substring(0, equals), HexFormat.of().parseHex(pair.substring(equals + 1)));
    }
  }

  @Override
  public ByteBuffer wrapKey(ByteBuffer key, String wrappingKeyId) {
    byte[] nonce = new byte[NONCE];
    RANDOM.nextBytes(nonce);
    byte[] sealed = run(Cipher.ENCRYPT_MODE, wrappingKeyId, nonce, bytes(key));
    return ByteBuffer.allocate(NONCE + sealed.length).put(nonce).put(sealed).flip();
  }

  @Override
  public ByteBuffer unwrapKey(ByteBuffer wrappedKey, String wrappingKeyId) {
    ByteBuffer rest = wrappedKey.duplicate();
    byte[] nonce = new byte[NONCE];
    rest.get(nonce);
    return ByteBuffer.wrap(run(Cipher.DECRYPT_MODE, wrappingKeyId, nonce, bytes(rest)));
  }

  private byte[] run(int mode, String keyId, byte[] nonce, byte[] input) {
    byte[] master = masterKeys.get(keyId);
    if (master == null) {
      throw new IllegalArgumentException("There is no master key " + keyId);
    }
    try {
      Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
      cipher.init(mode, new SecretKeySpec(master, "AES"), new GCMParameterSpec(TAG_BITS, nonce));
      return cipher.doFinal(input);
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("The master key " + keyId + " does not fit", e);
    }
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] result = new byte[buffer.remaining()];
    buffer.duplicate().get(result);
    return result;
  }
}
