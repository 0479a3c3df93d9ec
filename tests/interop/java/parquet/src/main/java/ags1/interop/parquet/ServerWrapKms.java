package ags1.interop.parquet;

import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;

/**
 * A KMS that wraps on its side: base64 of nonce, ciphertext and tag under the master key, with the UTF-8 text of the
 * master key id as AAD.
 */
public final class ServerWrapKms implements KmsClient {
  private MasterKeys toWrap;
  private MasterKeys toUnwrap;

  @Override
  public void initialize(Configuration configuration, String instanceId, String instanceUrl, String token) {
    toUnwrap = new MasterKeys(configuration, MasterKeys.OLD_LIST);
    boolean rotating = configuration.get(MasterKeys.NEW_LIST) != null;
    toWrap = rotating ? new MasterKeys(configuration, MasterKeys.NEW_LIST) : toUnwrap;
  }

  @Override
  public String wrapKey(byte[] key, String masterKeyId) {
    MasterKeys.WRAPS.incrementAndGet();
    return KeyToolkit.encryptKeyLocally(key, toWrap.get(masterKeyId), aad(masterKeyId));
  }

  @Override
  public byte[] unwrapKey(String wrapped, String masterKeyId) {
    MasterKeys.UNWRAPS.incrementAndGet();
    return KeyToolkit.decryptKeyLocally(wrapped, toUnwrap.get(masterKeyId), aad(masterKeyId));
  }

  private static byte[] aad(String masterKeyId) {
    return masterKeyId.getBytes(StandardCharsets.UTF_8);
  }
}
