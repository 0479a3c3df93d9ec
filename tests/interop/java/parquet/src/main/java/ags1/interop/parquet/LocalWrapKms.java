package ags1.interop.parquet;

import org.apache.parquet.crypto.keytools.LocalWrapKmsClient;

/** A KMS that hands out its master keys, for parquet-java's own local wrapping. */
public final class LocalWrapKms extends LocalWrapKmsClient {
  private MasterKeys keys;

  @Override
  protected void initializeInternal() {
    keys = new MasterKeys(hadoopConfiguration, MasterKeys.OLD_LIST);
  }

  @Override
  protected byte[] getMasterKeyFromServer(String masterKeyId) {
    return keys.get(masterKeyId);
  }

  @Override
  public String wrapKey(byte[] key, String masterKeyId) {
    MasterKeys.WRAPS.incrementAndGet();
    return super.wrapKey(key, masterKeyId);
  }

  @Override
  public byte[] unwrapKey(String wrapped, String masterKeyId) {
    MasterKeys.UNWRAPS.incrementAndGet();
    return super.unwrapKey(wrapped, masterKeyId);
  }
}
